"""What is read as a declared rating, and, as often, what is not."""

from __future__ import annotations

import unicodedata
from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tradingagents_core import read_rating
from tradingagents_core.decisions import PLAN, PROPOSAL, SENTIMENT
from tradingagents_core.ratings import RATING_WORDS, TIERS, read_declared, tier_of

DECLARED = [
    # the plain line, and its ornaments
    ("Rating: Buy", "Buy"),
    ("RATING: SELL", "Sell"),
    ("rating = hold", "Hold"),
    ("Rating - Underweight", "Underweight"),
    ("Rating — Overweight", "Overweight"),
    ("Rating -> Sell", "Sell"),
    ("Rating：Overweight", "Overweight"),
    ("**Rating:** overweight", "Overweight"),
    ("**Rating**: **Hold**", "Hold"),
    ("**Rating: Buy**", "Buy"),
    ("__Rating__: _Sell_", "Sell"),
    ("`Rating: Underweight`", "Underweight"),
    ("<b>Rating:</b> Buy<br>Summary: fine", "Buy"),
    ("- **Rating:** Buy", "Buy"),
    ("* Rating: Hold", "Hold"),
    ("1. Rating: Sell", "Sell"),
    ("### Rating: Overweight", "Overweight"),
    ("✅ Rating: Buy", "Buy"),
    ("Rating: 🟢 Buy", "Buy"),
    ("Rating: [Hold]", "Hold"),
    ('Rating: "Sell"', "Sell"),
    ("   Rating :   Hold.", "Hold"),
    # what may follow it
    ("Rating: Buy (high conviction)", "Buy"),
    ("Rating: Hold (upgraded from Sell)", "Hold"),
    ("Rating: Hold — not a Buy at this price", "Hold"),
    ("Rating: Overweight, with a target of 220", "Overweight"),
    ("Rating: Buy with high confidence", "Buy"),
    ("Rating: Sell | Confidence: medium", "Sell"),
    ("Rating: Underweight; trim into strength.", "Underweight"),
    ("Rating: Sell ✔", "Sell"),
    ("Rating: Buy rating", "Buy"),
    # labels that are still our own
    ("Final Rating: Sell", "Sell"),
    ("Our rating: Hold", "Hold"),
    ("Portfolio Manager's Rating: Buy", "Buy"),
    ("Overall Investment Rating: Underweight", "Underweight"),
    ("Rating (5-tier): Overweight", "Overweight"),
    ("Rating for NVDA: Sell", "Sell"),
    ("The final rating is Hold.", "Hold"),
    ("Final Decision: Buy", "Buy"),
    ("The rating is: **Hold**", "Hold"),
    ("Rating: Hold (may be upgraded to Buy after earnings)", "Hold"),
    ("Rating: Buy (per our own model)", "Buy"),
    ("Rating: Buy. If it falls below 90, sell.", "Buy"),
    ("Rating: Hold. Volume has been otherwise quiet.", "Hold"),
    ("Rating: Hold, only modest upside remains", "Hold"),
    ("Rating: Buy (upgraded to Buy)", "Buy"),
    ("Rating: Sell (since the trend broke)", "Sell"),
    # tables, headings, JSON
    ("| Rating | Buy |\n|---|---|\n| Horizon | 1 month |", "Buy"),
    ("| Item | Value |\n|---|---|\n| **Rating** | **Underweight** |", "Underweight"),
    ("| Rating | Confidence |\n|:--|--:|\n| Hold | low |", "Hold"),
    ("| Ticker | Rating | Target |\n|---|---|---|\n| FB | Overweight | 220 |", "Overweight"),
    ("## Final Rating\n\n**Sell**\n\nBecause of the trend.", "Sell"),
    ("**Rating:**\nBuy", "Buy"),
    ('{"rating": "Overweight", "executive_summary": "x"}', "Overweight"),
    ('Here it is:\n```json\n{\n  "final_rating": "SELL"\n}\n```', "Sell"),
    ('{"decision": {"rating": "Hold"}}', "Hold"),
    ('{"rating": "Sell", "investment_thesis": "Line one.\nLine two."}', "Sell"),
    ("final_rating: Buy", "Buy"),
    # a reasoning model's thoughts are no answer
    ("<think>\nRating: Buy? Or\nRating: Sell\n</think>\nRating: Hold", "Hold"),
    ("Rating: Buy seems right.\n</think>\n\nRating: Sell", "Sell"),
    # Chinese
    ("评级：买入", "Buy"),
    ("**最终评级**：增持", "Overweight"),
    ("投资评级: 持有（维持）", "Hold"),
    ("评级：减持，目标价 150", "Underweight"),
    ("最终评级为卖出。", "Sell"),
    ("評級：賣出", "Sell"),
    ("评级：买入（Buy）", "Buy"),
    ("我们的评级：卖出", "Sell"),
    ("本次评级：持有", "Hold"),
    ("评级为：增持", "Overweight"),
    ("评级（五级）：低配", "Underweight"),
    # Japanese
    ("レーティング：買い", "Buy"),
    ("**投資判断**: ホールド", "Hold"),
    ("最終レーティング：オーバーウエート", "Overweight"),
    ("投資判断は売り", "Sell"),
    ("投資判断は「ホールド」です。", "Hold"),
    ("最終的な投資判断：買い", "Buy"),
    ("当社のレーティング：アンダーウエート（従来：ホールド）", "Underweight"),
    # Korean
    ("투자의견: 매수", "Buy"),
    ("최종 투자의견: 비중확대", "Overweight"),
    ("등급: 매도", "Sell"),
    # German
    ("Einstufung: Übergewichten", "Overweight"),
    ("**Gesamtbewertung:** Halten", "Hold"),
    ("Endgültige Einstufung: Verkaufen", "Sell"),
    ("Rating: Kaufen, mit einem Ziel von 220", "Buy"),
    ("Unsere Einstufung: Kaufen", "Buy"),
    ("Die Einstufung lautet Halten.", "Hold"),
    ("Endgültiges Urteil: Untergewichten", "Underweight"),
    # French
    ("Note finale : Surpondérer", "Overweight"),
    ("Notation : Conserver", "Hold"),
    ("Recommandation finale : Vendre", "Sell"),
    ("Notre notation : Acheter", "Buy"),
    # Spanish, Portuguese, Italian
    ("Nuestra calificación: Sobreponderar", "Overweight"),
    ("La calificación es Mantener.", "Hold"),
    ("Calificación final (5 niveles): Vender", "Sell"),
    ("Calificación: Comprar", "Buy"),
    ("Calificación final: Infraponderar", "Underweight"),
    ("Classificação: Manter", "Hold"),
    ("Giudizio finale: Sottopesare", "Underweight"),
]

NOTHING = [
    "",
    "   \n\n",
    "Rating: N/A",
    "Rating: none",
    "Rating:",
    "Rating: TBD",
    # other scales
    "Rating: Neutral",
    "Rating: Strong Buy",
    "Rating: 4/5",
    "评级：中性",
    # a scale that is listed
    "Rating: Buy / Overweight / Hold / Underweight / Sell",
    "Rating: Buy, Overweight, Hold, Underweight or Sell",
    "Rating: Buy or Hold",
    "Rating: Buy/Hold",
    "Rating: Hold -> Buy",
    "Rating: [Buy|Hold|Sell]",
    "Rating: <one of Buy, Hold, Sell>",
    "评级：买入/增持/持有",
    "Rating:\n- Buy\n- Overweight\n- Hold",
    "| Rating | Meaning |\n|---|---|\n| Buy | strong |\n| Hold | balanced |",
    "| Rating | Buy | Hold | Sell |",
    # somebody else's rating
    "Street consensus rating: Buy (28 of 35)",
    "Consensus rating: Overweight",
    "Analyst rating: Sell",
    "Morgan Stanley rating: Overweight",
    "Previous rating: Hold",
    "Rating (previous): Buy",
    "Credit rating: Buy",
    "Rating: Buy (28 of 35 analysts)",
    "Rating: Buy by 28 brokers",
    "Rating: Buy (per Goldman Sachs)",
    "Rating: Buy (source: Zacks)",
    "Rating: Buy, according to Example Bank",
    "Einstufung: Kaufen (laut Deutsche Bank)",
    "评级：买入（据高盛）",
    "高盛的评级：买入",
    "> Rating: Buy",
    "“Rating: Buy”, says the street.",
    "The street has a Buy rating on it.",
    "| Broker | Rating |\n|---|---|\n| Example Bank | Sell |",
    '{"consensus_rating": "Buy"}',
    '{"peers": [{"rating": "Buy"}], "street": {"rating": "Sell"}}',
    # negations and doubts
    "Rating: not a Buy",
    "Rating: Buy is not advised",
    "Rating: Buy — not recommended here",
    "Rating: Buy?",
    "Rating: Buy. Or maybe Hold.",
    "Rating: Buy, perhaps Overweight",
    "Rating: Buy, downgraded to Hold",
    # conditions
    "Rating: Buy (if it falls below 90)",
    "Rating: Buy, but only if it breaks 120",
    "Rating: Buy while it holds 120, otherwise Sell",
    "Rating: Buy, as long as it holds 120; otherwise Sell",
    "Einstufung: Kaufen (falls der Kurs unter 90 fällt)",
    "评级：买入（若回调至100元）",
    "评级：买入，否则卖出",
    "Calificación: Comprar (si cae por debajo de 90)",
    "投資判断は買いであるとは言えない",
    "评级：不建议买入",
    "评级：买入（不推荐）",
    # ordinary words
    "Hold on, this needs a closer look.",
    "Rating: Hold on until the report is out",
    "Rating: Buy-side desks disagree",
    "Rating: Sell side is upbeat",
    "We would not sell here; buy the dip.",
    "Note: Hold.",
    "Things to watch: buy backs.",
    "Rating agencies: hold steady.",
    "<think>Rating: Buy",
]


@pytest.mark.parametrize(("text", "rating"), DECLARED)
def test_a_declared_rating_is_read(text: str, rating: str) -> None:
    found = read_rating(text)
    assert (found.rating, found.source) == (rating, "declared_line")


@pytest.mark.parametrize("text", NOTHING)
def test_what_declares_nothing_has_no_rating(text: str) -> None:
    found = read_rating(text)
    assert (found.rating, found.source) == (None, "none")


def test_the_declared_line_wins_over_a_rating_quoted_in_the_body() -> None:
    text = (
        "**Rating**: Hold\n\nThe stock trades at 28 times earnings. Buybacks go on.\n\n"
        "Street consensus rating: Buy (28 of 35)"
    )
    assert read_rating(text).rating == "Hold"


@pytest.mark.parametrize(
    ("text", "rating", "source"),
    [
        ("Rating: Buy\n\nRating: Buy", "Buy", "declared_line"),
        ("Rating: Buy\n\nRating: Sell", None, "conflicting"),
        ("Rating: Buy\nFinal Rating: Sell", "Sell", "declared_line"),
        ("Final Rating: Sell\nRating: Buy", "Sell", "declared_line"),
        ("Rating (final): Hold\nRating: Buy", "Hold", "declared_line"),
        ("Final Rating: Sell\nFinal Decision: Buy", None, "conflicting"),
        ("Rating: Hold\nRevised rating: Sell", None, "conflicting"),
        ("Initial rating: Buy\nFinal rating: Sell", "Sell", "declared_line"),
        ("评级：买入\n最终评级：持有", "Hold", "declared_line"),
        ("Rating: Buy\n评级：卖出", None, "conflicting"),
        ("Rating: Hold\n评级：持有", "Hold", "declared_line"),
        ('Rating: Buy\n```json\n{"rating": "Sell"}\n```', None, "conflicting"),
    ],
)
def test_of_two_declared_lines_the_final_one_wins_else_none_does(
    text: str, rating: str | None, source: str
) -> None:
    found = read_rating(text)
    assert (found.rating, found.source) == (rating, source)


@pytest.mark.parametrize(("first", "second"), list(permutations(TIERS, 2)))
def test_any_two_different_tiers_conflict(first: str, second: str) -> None:
    assert read_rating(f"Rating: {first}\nRating: {second}").source == "conflicting"


@given(st.text(), st.sampled_from(TIERS))
def test_a_text_without_a_rating_label_never_has_a_rating(text: str, tier: str) -> None:
    body = text.replace(":", "").replace("|", "").replace("{", "")
    assert read_rating(f"We {tier} this. {body}").rating is None


WORDS = ["buy", "Hold", "sell", "overweight", "the", "rating", "consensus", "is", "not", "a", "of"]
MARKS = [" ", "\n", ": ", ", ", " / ", "**", " | ", "- ", "> ", ". "]


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(MARKS)), max_size=12))
def test_hold_is_read_only_where_a_label_and_the_word_meet(
    pairs: list[tuple[str, str]],
) -> None:
    text = "".join(word + mark for word, mark in pairs)
    if read_rating(text).rating == "Hold":
        spoken = " ".join("".join(letter if letter.isalpha() else " " for letter in text).split())
        assert "rating Hold" in spoken or "rating is Hold" in spoken


LABELS = {*RATING_WORDS.heads, *RATING_WORDS.plain, *RATING_WORDS.final}


@given(st.lists(st.sampled_from([text for text in NOTHING if text.strip()]), max_size=6))
def test_whatever_declares_nothing_is_no_hold_in_any_company(texts: list[str]) -> None:
    assert read_rating("\n\n".join(texts)).rating != "Hold"


@given(st.text(), st.sampled_from(["Hold", "hold", "HOLD", "持有", "ホールド", "보유", "halten"]))
def test_a_text_without_a_declared_line_is_never_a_hold(text: str, word: str) -> None:
    spoken = unicodedata.normalize("NFKC", text).casefold()
    assume(not any(label in spoken for label in LABELS))
    for form in (f"{text} {word}", f"{word} {text}", f"{text}\n{word}\n{text}", word):
        assert read_rating(form).rating is None


@given(st.text(max_size=400))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    assert read_rating(text).source in ("declared_line", "conflicting", "none")


@given(st.sampled_from(TIERS), st.text(alphabet=st.characters(blacklist_categories=["Cs"])))
def test_a_first_line_that_declares_is_read_whatever_plain_prose_follows(
    tier: str, prose: str
) -> None:
    flat = "".join(letter if letter.isalnum() else " " for letter in prose)
    assert read_rating(f"Rating: {tier}\n\nIn short, {flat}").rating == tier


def test_a_long_text_of_braces_and_labels_is_read_in_no_time() -> None:
    text = "{" * 5_000 + "rating" * 5_000 + "\n" + "| Rating " * 2_000 + "\nRating: Sell"
    assert read_rating(text).rating == "Sell"


@pytest.mark.parametrize(
    ("word", "tier"),
    [("BUY", "Buy"), (" hold ", "Hold"), ("卖出", "Sell"), ("Neutral", None), ("Buy now", None)],
)
def test_a_lone_word_is_a_tier_only_where_it_is_one_of_the_scale(
    word: str, tier: str | None
) -> None:
    assert tier_of(word) == tier


def test_the_other_forms_have_lines_of_their_own() -> None:
    assert read_declared("**Recommendation**: Overweight", PLAN.vocabulary).word == "Overweight"
    assert read_declared("FINAL TRANSACTION PROPOSAL: **SELL**", PROPOSAL.vocabulary).word == "Sell"
    assert read_declared("Action: Overweight", PROPOSAL.vocabulary).word is None
    band = "Overall Sentiment: Mildly Bearish"
    assert read_declared(band, SENTIMENT.vocabulary).word == "Mildly Bearish"
    # A portfolio manager who quotes the plan has not rated yet.
    assert read_rating("**Recommendation**: Overweight").rating is None
