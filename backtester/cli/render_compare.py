"""What is printed of two scores side by side: what they differ in, and what can be paired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backtester.cli.render import say, simple_table, write_fitting, write_folded
from backtester.cli.render_parts import NO_INTERVAL, percent
from backtester.store.comparison import (
    Compared,
    compared,
    differences,
    paired_books,
    paired_calls,
    setting_words,
)
from backtester.store.scores import score_summary
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from backtester.runs.folder import RunManifest
    from backtester.store.scores import ScoreSummary

# Settings that say the same as others, session by session.
_LONG: Final = frozenset({"grid_sessions"})


def comparison_document(
    database: Path, manifests: tuple[RunManifest, RunManifest], scores: tuple[str, str]
) -> dict[str, Any]:
    """Return what differs between two scores and how they came out, as JSON values.

    Args:
        database: Published database.
        manifests: Of the two runs, which may be one.
        scores: Ids of the scores.

    Raises:
        DataError: There is no database, it is damaged, or a score is not there.
    """
    first, second = (
        compared(database, manifest.run_id, score)
        for manifest, score in zip(manifests, scores, strict=True)
    )
    identities = [manifest.identity for manifest in manifests]
    names = sorted({*identities[0], *identities[1]} - _LONG)
    return {
        "sides": [_side(database, side) for side in (first, second)],
        "settings": {
            name: [identity.get(name) for identity in identities]
            for name in names
            if identities[0].get(name) != identities[1].get(name)
        },
        "differences": [asdict(found) for found in differences(first, second)],
        "calls": asdict(paired_calls(database, first, second)),
        "books": asdict(paired_books(database, first, second)),
    }


def _side(database: Path, side: Compared) -> dict[str, Any]:
    summary = score_summary(database, side.run_id, score_id=side.score_id)
    figures = {} if summary is None else _figures(summary)
    return {"run": side.run_id, "score": side.score_id, "label": side.label, **figures}


def _figures(summary: ScoreSummary) -> dict[str, Any]:
    main, own = summary.main, summary.book("ratings")
    return {
        "first_date": summary.first_date,
        "last_date": summary.last_date,
        "horizon": summary.horizon,
        "policy": summary.definition["policy"]["name"],
        "hold": summary.definition["policy"]["hold"],
        "n": main.n if main else 0,
        "mean_directional_alpha": main.value if main else None,
        "low": main.low if main else None,
        "high": main.high if main else None,
        "reason": main.reason if main else None,
        "verdict": main.verdict if main else None,
        "sessions": own.sessions if own else None,
        "total_return": own.total_return if own else None,
        "sharpe": own.sharpe if own else None,
        "sharpe_low": own.sharpe_low if own else None,
        "sharpe_high": own.sharpe_high if own else None,
        "max_drawdown": own.max_drawdown if own else None,
        "no_book": summary.no_book,
    }


def show_comparison(document: Mapping[str, Any]) -> None:
    """Print what `comparison_document` found."""
    for mark, side in zip("AB", document["sides"], strict=True):
        say(printable(f"{mark}  {side['run']}, score {side['score']}: {side['label']}", keep=""))
    if document["settings"]:
        say("")
        settings = simple_table("setting", "A", "B")
        for name, values in document["settings"].items():
            settings.add_row(name, *(printable(setting_words(one), keep="") for one in values))
        write_folded(settings)
    say("")
    for line in _difference_lines(document):
        say(line)
    say("")
    _write_figures(document)
    say("")
    for line in (*_trial_lines(document), *_call_lines(document), *_book_lines(document)):
        say(line)


def _trial_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Say what of several trials is paired, and whose book is meant; nothing of one trial each."""
    first, second, both = document["calls"]["trials"]
    if max(first, second) < 2:
        return
    paired = "cells are paired trial by trial"
    left = [f"{n - both} of {mark}" for n, mark in ((first, "A"), (second, "B")) if n > both]
    if left:
        paired += f", so {' and '.join(left)} find no other and are left out of the pairs"
    has = f"both have {first}" if first == second else f"A has {first} and B {second}"
    yield f"trials of a cell: {has}; {paired}; books are those of the first trial alone"


def _difference_lines(document: Mapping[str, Any]) -> Iterator[str]:
    found, one_side = document["differences"], document["sides"][0]
    if not found:
        yield (
            f"comparable: both of decisions of {one_side['first_date']} to "
            f"{one_side['last_date']}, with one universe, entry rule, horizon, benchmark and "
            "snapshot"
        )
        return
    for one in found:
        what, first, second = (printable(str(one[k]), keep="") for k in ("what", "first", "second"))
        yield f"other {what}: A {first}; B {second}"
    yield "not comparable as they stand, so no difference is shown; beneath is what can be paired"
    rest = [one["what"] for one in found if not one["paired"]]
    if rest:
        yield f"the pairs differ by {', '.join(rest)} too, and not by ratings and book alone"


def _write_figures(document: Mapping[str, Any]) -> None:
    """Print the figures of both sides, and their difference where they are of the same things."""
    rows = list(_figure_rows(document["sides"]))
    comparable = not document["differences"]
    write_fitting(
        (_figure_table(rows, comparable=comparable),),
        (_figure_table(rows, comparable=comparable, close=True),),
        (_figure_table(rows, comparable=comparable, close=True, broken=True),),
    )


def _figure_table(
    rows: Sequence[_Figure], *, comparable: bool, close: bool = False, broken: bool = False
) -> Table:
    """Return the figures of both sides; broken, an interval takes two lines."""
    table = simple_table("")
    if close:
        table.padding = (0, 0)
    for heading in ("A", "B", "A - B") if comparable else ("A", "B"):
        table.add_column(heading, justify="right", vertical="bottom")
    for figure in rows:
        cells = [side.replace(" to ", " to\n") if broken else side for side in figure.sides]
        table.add_row(figure.name, *cells, *((figure.difference,) if comparable else ()))
    return table


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """Hold one row of the figures.

    Attributes:
        name: What it is.
        sides: Of A and of B, in words.
        difference: The first less the second in words, or empty.
    """

    name: str
    sides: tuple[str, ...]
    difference: str = ""


def _figure_rows(sides: list[dict[str, Any]]) -> Iterator[_Figure]:
    def words(name: str, show: Callable[[Any], str]) -> _Figure:
        return _Figure(name=name, sides=tuple(show(side) for side in sides))

    def number(name: str, key: str, show: Callable[[float | None], str]) -> _Figure:
        first, second = (side[key] for side in sides)
        known = first is not None and second is not None
        return _Figure(
            name=name,
            sides=(show(first), show(second)),
            difference=show(first - second) if known else "n/a",
        )

    yield words("first decision from", lambda side: str(side["first_date"]))
    yield words("last decision by", lambda side: str(side["last_date"]))
    yield words("policy", _policy)
    yield words("horizon, sessions", lambda side: str(side["horizon"]))
    yield words("calls with an alpha", lambda side: str(side["n"]))
    yield number("directional alpha", "mean_directional_alpha", percent)
    yield words("its 95 % interval", _ends)
    yield words("book: session returns", lambda side: str(side["sessions"] or "n/a"))
    yield number("total return", "total_return", _two_digits)
    yield number("deepest fall", "max_drawdown", _two_digits)
    yield number("Sharpe a year", "sharpe", _ratio)
    yield words("its 95 % interval", _sharpe_ends)


def _two_digits(value: float | None) -> str:
    return percent(value, digits=2)


def _policy(side: Mapping[str, Any]) -> str:
    hold = "" if side["hold"] == "carry" else f", hold {side['hold']}"
    return f"{side['policy']}{hold}"


def _ends(row: Mapping[str, Any]) -> str:
    if row["low"] is None or row["high"] is None:
        return NO_INTERVAL.get(row["reason"], row["reason"] or "n/a")
    return f"{100 * row['low']:+.3f} to {percent(row['high'])}"


def _ratio(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.2f}"


def _sharpe_ends(side: Mapping[str, Any]) -> str:
    if side["sharpe_low"] is None or side["sharpe_high"] is None:
        return "n/a"
    return f"{side['sharpe_low']:+.2f} to {side['sharpe_high']:+.2f}"


def _call_lines(document: Mapping[str, Any]) -> Iterator[str]:
    calls = document["calls"]
    plural = "" if calls["decided"] == 1 else "s"
    yield (
        f"{calls['decided']} cell{plural} decided by both, {calls['same_rating']} with the same "
        "rating"
    )
    if calls["horizon"] is None:
        yield "no horizon that both have: score one of them with the other's --horizon"
        return
    if not calls["n"]:
        yield "none of them has an alpha in both: nothing can be paired"
        return
    yield (
        f"directional alpha over the {calls['n']} that have one in both (h={calls['horizon']}, a "
        f"Hold counts 0): A {percent(calls['first'])}, B {percent(calls['second'])}; "
        f"{_difference(calls['difference'])}"
    )


def _book_lines(document: Mapping[str, Any]) -> Iterator[str]:
    for mark, side in zip("AB", document["sides"], strict=True):
        if side["no_book"] is not None:
            yield printable(f"{mark} has no book: {side['no_book']}", keep="")
    books = document["books"]
    if not books["n"]:
        yield "the books have no session in common"
        return
    yield (
        f"books over the {books['n']} sessions that both have, {books['start']} to "
        f"{books['end']}: A {percent(books['first'], digits=2)}, B "
        f"{percent(books['second'], digits=2)}; a session, {_difference(books['difference'])}"
    )


def _difference(found: Mapping[str, Any]) -> str:
    if found["reason"] == "no_variation" and found["mean"] == 0.0:
        return "no difference"
    line = f"A - B {percent(found['mean'])}"
    if found["low"] is None or found["high"] is None:
        return f"{line}, no interval ({NO_INTERVAL.get(found['reason'], found['reason'])})"
    effective = f", effective n {found['effective_n']:.0f}" if found["effective_n"] else ""
    verdict = "not distinguishable from luck"
    if found["low"] > 0.0 or found["high"] < 0.0:
        verdict = "above zero" if found["low"] > 0.0 else "below zero"
    return (
        f"{line} (95 % {100 * found['low']:+.3f} to {percent(found['high'])}, n {found['n']}"
        f"{effective}): {verdict}"
    )
