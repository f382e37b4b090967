"""The five tiers, and how a declared one is read out of a model's own text.

A rating counts only where the text *declares* it: on a line, table row, heading or JSON field whose
label says nothing but "rating" (or "final rating", or the same in another language) and whose value
is one tier. A rating that is quoted ("Street consensus rating: Buy (28 of 35)"), listed as a scale,
negated or used as an ordinary word declares nothing. There is no default: a text without a
declaration has no rating, and two different declarations cancel each other unless one of them is
marked as final.

The rule errs on the side of reading nothing: an unread answer is asked for again and counted, a
wrongly read one would be traded.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

Rating = Literal["Sell", "Underweight", "Hold", "Overweight", "Buy"]
LineSource = Literal["declared_line", "conflicting", "none"]
Kind = Literal["plain", "final"]

TIERS: tuple[Rating, ...] = ("Sell", "Underweight", "Hold", "Overweight", "Buy")

# What the five tiers are called where models answer in another language. Words for "neutral" or
# "strong buy" are left out on purpose: they belong to other scales.
_TIER_WORDS: Mapping[Rating, tuple[str, ...]] = {
    "Buy": (
        "buy",
        *("买入", "買入", "买进", "買進"),
        *("買い", "매수"),
        *("kaufen", "kauf", "acheter", "achat", "comprar", "compra", "acquistare", "acquisto"),
        *("kopen", "kupuj", "покупать"),
    ),
    "Overweight": (
        *("overweight", "over-weight"),
        *("增持", "超配", "加碼", "加码"),
        *("オーバーウェイト", "オーバーウエート", "オーバーウエイト", "비중확대", "비중 확대"),
        *("übergewichten", "übergewichtung", "übergewichtet", "surpondérer", "surpondération"),
        *("sobreponderar", "sobreponderación", "sobreponderação", "sovrappesare", "sovrappeso"),
        *("overwegen", "przeważaj"),
    ),
    "Hold": (
        "hold",
        *("持有", "ホールド", "保有", "보유"),
        *("halten", "conserver", "mantener", "manter", "mantenere", "houden", "trzymaj"),
        "держать",
    ),
    "Underweight": (
        *("underweight", "under-weight"),
        *("减持", "減持", "低配", "减码", "減碼"),
        *("アンダーウェイト", "アンダーウエート", "アンダーウエイト", "비중축소", "비중 축소"),
        *("untergewichten", "untergewichtung", "untergewichtet", "sous-pondérer"),
        *("sous-pondération", "infraponderar", "infraponderación", "subponderar"),
        *("sottopesare", "sottopeso", "onderwegen", "niedoważaj"),
    ),
    "Sell": (
        "sell",
        *("卖出", "賣出", "沽出", "売り", "매도"),
        *("verkaufen", "verkauf", "vendre", "vente", "vender", "venta", "venda", "vendere"),
        *("vendita", "verkopen", "sprzedaj", "продавать"),
    ),
}

_PLAIN_LABELS = frozenset(
    {
        *("评级", "評級", "投资评级", "投資評級", "综合评级", "綜合評級", "股票评级", "评级结果"),
        *("レーティング", "投資判断", "投資評価", "格付", "評価"),
        *("투자의견", "투자 의견", "등급", "투자등급", "투자 등급", "평가"),
        *("bewertung", "einstufung", "anlageurteil", "gesamtbewertung", "gesamteinstufung"),
        *("gesamtrating", "gesamturteil", "notation", "évaluation", "avis"),
        *("calificación", "valoración", "clasificación", "classificação", "avaliação"),
        *("giudizio", "valutazione", "beoordeling", "ocena", "рейтинг", "оценка"),
    }
)
_FINAL_LABELS = frozenset(
    {
        *("final decision", "final verdict", "final recommendation", "final call"),
        *("最终评级", "最終評級", "最终决定", "最終決定", "最终投资评级", "最终结论", "最终建议"),
        *("最終レーティング", "最終評価", "最終判断", "最終投資判断"),
        *("最終的なレーティング", "最終的な評価", "最終的な投資判断"),
        *("최종등급", "최종 등급", "최종 투자의견", "최종 평가", "최종 의견"),
        *("endgültige bewertung", "endgültige einstufung", "endgültiges rating", "finales rating"),
        *("abschließende bewertung", "abschließende einstufung", "abschließendes rating"),
        *("finale bewertung", "finale einstufung", "endbewertung"),
        *("endgültiges urteil", "abschließendes urteil"),
        *("note finale", "notation finale", "évaluation finale", "avis final"),
        *("recommandation finale", "décision finale"),
        *("calificación final", "valoración final", "clasificación final", "rating final"),
        *("recomendación final", "decisión final"),
        *("classificação final", "avaliação final", "recomendação final", "decisão final"),
        *("giudizio finale", "valutazione finale", "rating finale", "raccomandazione finale"),
        *("итоговый рейтинг", "финальный рейтинг", "итоговая оценка"),
    }
)
# Words that may stand before "rating" without making it somebody else's.
_OWN_MODIFIERS = frozenset(
    {
        *("the", "our", "my", "overall", "portfolio", "investment", "stock", "equity", "share"),
        *("manager", "manager's", "manager’s", "pm", "5-tier", "five-tier", "official"),
        *("recommended", "assigned", "proposed"),
        # A changed mind is declared too, so that it conflicts with the line that it changes.
        *("current", "updated", "revised", "new"),
    }
)
# The same in the languages of the other labels: whose rating it is, or a mere article.
_OWN_FRONT = re.compile(
    r"^(?:(?:die|der|das|unsere?|meine?|le|la|les|notre|mon|ma|el|nuestr[ao]|mi|il|nostr[ao]|mi[ao]|"
    r"noss[ao]|minha)\s+|我们的|我們的|我的|本次|当社の|弊社の|私の|我々の)"
)
_LABEL_VERB = re.compile(r"\s(?:is|ist|lautet|est|es|è|é)$")
_OWN_TAILS = ("rating decision", "rating recommendation", "rating call")

_BREAKS = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAGS = re.compile(r"</?(?:b|strong|em|i|u|p|span|div|h[1-6]|mark)(?:\s[^<>]*)?>", re.IGNORECASE)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.IGNORECASE | re.DOTALL)
_THOUGHT_END = re.compile(r"\A.*</think(?:ing)?>", re.IGNORECASE | re.DOTALL)
_BULLET = re.compile(r"^(?:[-+•·▪◦●○■□➤►▶–—]|\d{1,2}[.)]|\(\d{1,2}\)|#{1,6})\s+")
_LABEL_NOTE = re.compile(
    r"\s*\((?:final|5-tier|five-tier|1 of 5|one of five|5-tier scale|five-tier scale|"
    r"(?:5|五|五个)[级級档檔]|5段階|5 stufen|5 niveles|5 niveaux|5 livelli|"
    r"\d{1,2}[- ]?m(?:onths?)?|\d{1,2}-month)\)$"
)
_LABEL_SUBJECT = re.compile(r"\s+(?:for|on)\s+[A-Z0-9^][A-Z0-9.^=-]{0,11}$")
_LINE = re.compile(
    r"^(?P<label>[^:=|]{1,60}?)\s*"
    r"(?P<separator>:|=|→|->|[–—]|\s-(?=\s)|"
    r"\b(?:is|ist|lautet|est|es|è|é)\b(?=\s)|(?:为|為|是|は)\s*:?|:\s*=)\s*"
    r"(?P<value>\S.*)$"
)
_SEPARATOR_ROW = re.compile(r"^[\s|:=+-]*-[\s|:=+-]*$")
_SUBJECT_COLUMNS = frozenset({"ticker", "symbol", "stock", "instrument", "asset", "company"})
_JSON_PARENTS = frozenset(
    {"decision", "final decision", "portfolio decision", "result", "output", "answer", "response"}
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OPENING = r"[\"'“”‘’「『【\[(]"
_CLOSING = r"[\"'“”‘’」』】\])]"

# What may follow the tier on its line. Anything else makes an ordinary phrase of it.
_NOUN_AFTER = re.compile(r"^\s*(?:rating|recommendation|评级|評級|등급)\b")
_WORD_AFTER = re.compile(
    r"^\s+(?:with|based|given|because|due|since|until|at|for|mit|auf|aufgrund|bei|avec|sur|con|"
    r"com|basado|per)\s"
)
_COPULA_AFTER = re.compile(r"^\s*(?:です|である|とする|とします|입니다)")
_POINT_AFTER = re.compile(r"^\s*(?:[.!;,。、(\[|]|[–—]|\s-\s|[✓✔])")
_JOIN_AFTER = (
    r"^\s*(?:[/|,;、·→>~&+()\[\]–—-]|to\b|or\b|and\b|oder\b|und\b|ou\b|et\b|o\b|y\b|e\b|"
    r"maybe\b|perhaps\b|possibly\b|或者?|または|또는|\s)*"
)
_DOUBT_AFTER = re.compile(r"^\s*[.;]\s*(?=(?:or|oder|ou|o)\b)")
# Goes before the tier that holds instead, or in another case.
_TURN_AFTER = re.compile(
    r"^\W{0,4}(?:(?:now|then|since)\s+)?(?:downgraded|upgraded|lowered|raised|cut|revised|changed)"
    r"\s+to\b|"
    r"\b(?:otherwise|sonst|andernfalls|sinon|de lo contrario|altrimenti)\b|否则|否則"
)
_SURVEY_AFTER = re.compile(
    r"\b\d+\s*(?:of|/|out of)\s*\d+\b|analysts?\b|brokers?\b|consensus|street|"
    r"^\s*[(\[,;–—-]\s*(?:(?:as\s+)?(?:per|according to|source|laut|selon|según|secondo)\b|据|據)"
    r"(?!\s*(?:our|my|the|this|unser|mein|notre|nuestr|nostr|我))"
)
_CONDITION_AFTER = re.compile(
    r"^\s*[,;–—-]?\s*(?:(?:but|aber|mais|pero)\s+)?(?:only|nur|seulement|solo|sólo)\s+"
    r"(?:if|when|once|on|at|below|above|under|after|wenn|falls|bei|unter|über|si|se)\b|"
    r"^\s*[(\[]\s*(?:(?:if|when|unless|once|provided|wenn|falls|sofern|si|se)\b|"
    r"若|如果|倘若|假如|一旦)"
)
_NEGATED_AFTER = re.compile(
    r"^\W{0,4}(?:is |was )?(?:not|no longer|never|isn't|wasn't|nicht|pas|no|não|non|不|未|非)"
    r".{0,24}?(?:advis|recommend|warrant|justif|appropriate|suitable|empf|conseill|recomend|"
    r"consigli|建议|建議|推荐|推薦|适合)"
)


@dataclass(frozen=True, kw_only=True)
class RatingReading:
    """Hold what a text declares.

    Attributes:
        rating: One of the five tiers, or None.
        source: ``declared_line``; ``conflicting`` where two declarations differ; ``none``.
    """

    rating: Rating | None
    source: LineSource


@dataclass(frozen=True, kw_only=True)
class DeclaredWord:
    """Hold the word that a text declares under some vocabulary, or None, and how it was had."""

    word: str | None
    source: LineSource


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Say which labels declare something, and which words they may declare.

    Attributes:
        words: Word as a text may have it, casefolded -> the word that it stands for.
        heads: English nouns that, with or without a modifier of our own, make a label.
        plain: Further labels, casefolded.
        final: Labels that mark the last word, casefolded.
    """

    words: Mapping[str, str]
    heads: frozenset[str]
    plain: frozenset[str] = frozenset()
    final: frozenset[str] = frozenset()

    @cached_property
    def value(self) -> re.Pattern[str]:
        """Match a value that begins with one of the words."""
        longest_first = sorted(self.words, key=lambda word: (-len(word), word))
        words = "|".join(re.escape(word) for word in longest_first)
        return re.compile(
            rf"^(?P<open>{_OPENING})?\s*(?P<word>{words})(?:\s*(?P<close>{_CLOSING}))?(?P<tail>.*)$"
        )

    @cached_property
    def listed(self) -> re.Pattern[str]:
        """Match a tail that goes on with another of the words, as a scale does."""
        words = "|".join(re.escape(word) for word in sorted(self.words, key=lambda w: (-len(w), w)))
        return re.compile(rf"{_JOIN_AFTER}(?P<word>{words})(?!\w){_CLOSING}?")


def _word_table(words: Mapping[Rating, tuple[str, ...]]) -> dict[str, str]:
    return {_plain(form): tier for tier, forms in words.items() for form in forms}


def _plain(text: str) -> str:
    """Bring widths, ligatures and case to one form."""
    return unicodedata.normalize("NFKC", text).casefold()


RATING_WORDS = Vocabulary(
    words=_word_table(_TIER_WORDS),
    heads=frozenset({"rating"}),
    plain=frozenset(map(_plain, _PLAIN_LABELS)),
    final=frozenset(map(_plain, _FINAL_LABELS)),
)


def tier_of(word: str) -> Rating | None:
    """Return the tier that a lone word stands for, in any of the known languages, else None."""
    return cast("Rating | None", RATING_WORDS.words.get(_plain(word.strip())))


def read_rating(text: str) -> RatingReading:
    """Read the rating that a text declares.

    Args:
        text: A model's reply, in any of the known languages.

    Returns:
        The declared tier; None with ``conflicting`` where two lines differ and none (or more than
        one) is marked final; None with ``none`` where nothing is declared. Never Hold for want of
        a rating.
    """
    found = read_declared(text, RATING_WORDS)
    return RatingReading(rating=cast("Rating | None", found.word), source=found.source)


def read_declared(text: str, vocabulary: Vocabulary) -> DeclaredWord:
    """Read the word that a text declares under a vocabulary; see `read_rating` for the rules."""
    found: dict[Kind, set[str]] = {"plain": set(), "final": set()}
    text = _without_thoughts(text)
    lines = [_clean(line) for line in _BREAKS.sub("\n", text).splitlines()]
    lines = [line for line in lines if line]
    for kind, word in (
        *_from_json(text, vocabulary),
        *_from_lines(lines, vocabulary),
        *_from_tables(lines, vocabulary),
        *_from_headings(lines, vocabulary),
    ):
        found[kind].add(word)
    words = found["final"] or found["plain"]
    if len(words) == 1:
        return DeclaredWord(word=next(iter(words)), source="declared_line")
    return DeclaredWord(word=None, source="conflicting" if words else "none")


def _without_thoughts(text: str) -> str:
    """Drop a reasoning model's thinking, which is no part of its answer."""
    text = _THOUGHT.sub("", text)
    return _THOUGHT_END.sub("", text)


def _clean(line: str) -> str:
    """Take emphasis, bullets and ornaments off a line; a block quote keeps its mark."""
    line = _TAGS.sub("", unicodedata.normalize("NFKC", line))
    line = " ".join(line.replace("*", "").replace("`", "").replace("_", " ").split())
    while True:
        shorter = _BULLET.sub("", _undecorated(line))
        if shorter == line:
            return line
        line = shorter


def _undecorated(text: str) -> str:
    """Strip leading pictures (a check mark, a coloured dot) and white space."""
    start = 0
    while start < len(text) and (
        text[start].isspace() or unicodedata.category(text[start]) in ("So", "Mn", "Cf")
    ):
        start += 1
    return text[start:]


def _kind(label: str, vocabulary: Vocabulary) -> Kind | None:
    """Say whether a label declares, and whether it marks the last word."""
    label = _LABEL_SUBJECT.sub("", _undecorated(label).strip().rstrip(":"))
    name = _LABEL_NOTE.sub("", _LABEL_VERB.sub("", label.casefold())).strip()
    noted_final = label.casefold().endswith("(final)")
    name = _OWN_FRONT.sub("", name)
    if name in vocabulary.final:
        return "final"
    for tail in _OWN_TAILS:
        if name.endswith(tail):
            name = name.removesuffix(tail.partition(" ")[2]).strip()
    if name in vocabulary.plain:
        return "final" if noted_final else "plain"
    modifiers, _, head = name.rpartition(" ")
    if head not in vocabulary.heads or not set(modifiers.split()) <= _OWN_MODIFIERS | {"final"}:
        return None
    return "final" if noted_final or "final" in modifiers.split() else "plain"


def _value(text: str, vocabulary: Vocabulary) -> str | None:
    """Return the word that a value is, or None where it is a scale, a phrase or something else."""
    match = vocabulary.value.match(_undecorated(text).casefold())
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    word = vocabulary.words[match["word"]]
    return word if _may_follow(word, match["tail"], vocabulary) else None


def _may_follow(word: str, tail: str, vocabulary: Vocabulary) -> bool:
    """Say whether what stands after the word leaves it a declaration."""
    again = vocabulary.listed.match(tail)
    if again is not None and vocabulary.words[again["word"]] == word:
        tail = tail[again.end() :]  # the same tier in a second language
    tail = _COPULA_AFTER.sub("", _NOUN_AFTER.sub("", tail))
    if not _undecorated(tail):
        return True
    if vocabulary.listed.match(_DOUBT_AFTER.sub(" ", tail)) or _takes_back(word, tail, vocabulary):
        return False
    pictured = unicodedata.category(tail.lstrip()[0]) == "So"
    return bool(pictured or _POINT_AFTER.match(tail) or _WORD_AFTER.match(tail))


def _takes_back(word: str, tail: str, vocabulary: Vocabulary) -> bool:
    """Say whether what follows a tier denies it, ties it to a condition or gives it to others."""
    for turn in _TURN_AFTER.finditer(tail):
        instead = vocabulary.listed.match(tail[turn.end() :])
        if instead is not None and vocabulary.words[instead["word"]] != word:
            return True
    return bool(
        _NEGATED_AFTER.match(tail)
        or _CONDITION_AFTER.match(tail)
        or _SURVEY_AFTER.search(tail.partition(")")[0])
    )


def _from_lines(lines: list[str], vocabulary: Vocabulary) -> Iterator[tuple[Kind, str]]:
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        kind = _kind(match["label"], vocabulary)
        word = _value(match["value"], vocabulary) if kind else None
        if kind and word:
            yield kind, word


def _from_headings(lines: list[str], vocabulary: Vocabulary) -> Iterator[tuple[Kind, str]]:
    """Read a label that stands alone, with its value on the next line and no list after it."""
    for position, line in enumerate(lines[:-1]):
        kind = _kind(line, vocabulary)
        word = _value(lines[position + 1], vocabulary) if kind else None
        after = lines[position + 2] if position + 2 < len(lines) else ""
        if kind and word and _value(after, vocabulary) is None:
            yield kind, word


def _cells(line: str) -> list[str]:
    if "|" not in line:
        return []
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _from_tables(lines: list[str], vocabulary: Vocabulary) -> Iterator[tuple[Kind, str]]:
    for position, line in enumerate(lines):
        cells = _cells(line)
        if len(cells) >= 2 and (kind := _kind(cells[0], vocabulary)):
            word = _value(cells[1], vocabulary)
            if word and not any(_value(cell, vocabulary) for cell in cells[2:]):
                yield kind, word
        yield from _from_column(lines[position : position + 4], cells, vocabulary)


def _from_column(
    lines: list[str], header: list[str], vocabulary: Vocabulary
) -> Iterator[tuple[Kind, str]]:
    """Read a table with a rating column and one row, of the subject itself and nobody else."""
    if len(header) < 2 or len(lines) < 3 or not _SEPARATOR_ROW.match(lines[1]):
        return
    column = 1 if header[0].casefold() in _SUBJECT_COLUMNS else 0
    kind = _kind(header[column], vocabulary)
    row = _cells(lines[2])
    alone = len(lines) == 3 or not _cells(lines[3])
    word = _value(row[column], vocabulary) if kind and alone and len(row) > column else None
    if kind and word:
        yield kind, word


def _from_json(text: str, vocabulary: Vocabulary) -> Iterator[tuple[Kind, str]]:
    decoder = json.JSONDecoder(strict=False)  # Models break lines within a text.
    position = 0
    for _ in range(20):
        position = text.find("{", position)
        if position < 0:
            return
        try:
            value, end = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            position += 1
            continue
        yield from _from_object(value, vocabulary)
        position = end


def _from_object(value: object, vocabulary: Vocabulary) -> Iterator[tuple[Kind, str]]:
    """Read the label fields of an object, and of objects under a key that says "decision"."""
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        name = _CAMEL.sub(" ", str(key)).replace("_", " ").strip()
        if isinstance(item, str) and (kind := _kind(name, vocabulary)):
            word = vocabulary.words.get(_plain(item.strip()))
            if word is not None:
                yield kind, word
        elif name.casefold() in _JSON_PARENTS:
            yield from _from_object(item, vocabulary)
