"""What is printed of scores: books, the band of chance, and what the interval lets one say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backtester.cli.render import say, simple_table, write, write_fitting
from backtester.store.scores import score_summaries, shared_cells
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from backtester.runs.folder import RunManifest
    from backtester.snapshots.diff import TableDiff
    from backtester.store.scores import BookLine, Certain, ScoreSummary

_SHOWN_REVISIONS: Final = 5
# Settings that say the same as others, session by session.
_LONG: Final = frozenset({"grid_sessions"})
_NAMES: Final = {"buy_and_hold": "buy and hold", "equal_weight": "equal weight"}


def show_scores(database: Path, run_id: str, *, score_id: str | None = None) -> None:
    """Print a run's own score, or the one that is named."""
    for summary in score_summaries(database, run_id, score_id=score_id or "default"):
        _show(summary)


def show_score_table(database: Path, run_id: str) -> None:
    """Print all scores of a run side by side."""
    table = simple_table("score", "policy", "horizon", "window", "snapshot")
    for heading in ("mean directional\nalpha", "95 % interval", "book", "buy and hold", "sharpe"):
        table.add_column(heading, justify="right", vertical="bottom")
    for summary in score_summaries(database, run_id):
        main = summary.main
        own = _first(summary.books, "ratings")
        hold = _first(summary.books, "buy_and_hold")
        table.add_row(
            summary.score_id,
            summary.policy,
            str(summary.horizon),
            f"{summary.first_date}..{summary.last_date}",
            printable(summary.snapshot_name, keep=""),
            _percent(main.value if main else None),
            _interval(main),
            _percent(own.total_return if own else None),
            _percent(hold.total_return if hold else None),
            _number(own.sharpe if own else None),
        )
    write(table)


def _show(summary: ScoreSummary) -> None:
    say(f"book of score {summary.score_id}: {_rules(summary)}")
    if summary.no_book is not None:
        say(f"no book: {printable(summary.no_book)}")
    else:
        wide, narrow = _book_tables(summary)
        write_fitting((wide,), (narrow,))
        for line in _band_lines(summary):
            say(line)
    for line in _certain_lines(summary):
        say(line)


def _rules(summary: ScoreSummary) -> str:
    costs = {name: value for name, value in json.loads(summary.costs).items() if value}
    words = ", ".join(f"{name} {value:g}" for name, value in sorted(costs.items())) or "no costs"
    return (
        f"{summary.policy}, fills {summary.entry_rule}, {words}, decisions of "
        f"{summary.first_date} to {summary.last_date}, snapshot "
        f"{printable(summary.snapshot_name, keep='')}"
    )


def _book_tables(summary: ScoreSummary) -> tuple[Table, Table]:
    wide, narrow = simple_table("book"), simple_table("book")
    headings = ("total return", "a year", "volatility", "sharpe", "max drawdown", "turnover a year")
    for place, heading in enumerate(headings):
        wide.add_column(heading, justify="right")
        if place in (0, 3, 4):
            narrow.add_column(heading, justify="right")
    for book in summary.books:
        figures = (
            _percent(book.total_return),
            _percent(book.cagr),
            _amount(book.volatility, percent=True),
            _number(book.sharpe),
            _percent(book.max_drawdown),
            _amount(book.turnover),
        )
        name = _name_of(book, summary.books)
        wide.add_row(name, *figures)
        narrow.add_row(name, figures[0], figures[3], figures[4])
    return wide, narrow


def _name_of(book: BookLine, books: Sequence[BookLine]) -> str:
    lanes = sum(other.book == book.book for other in books)
    lane = f" (trial {book.trial})" if lanes > 1 else ""
    return _NAMES.get(book.book, book.book) + lane


def _band_lines(summary: ScoreSummary) -> Iterator[str]:
    band, own = summary.band, _first(summary.books, "ratings")
    if band is None or band.low is None or band.high is None or own is None:
        yield "random ratings: none drawn"
        return
    line = (
        f"random ratings: 5-95 % of {band.draws} books made {_percent(band.low)} to "
        f"{_percent(band.high)}"
    )
    if own.total_return is None or band.share_below is None:
        yield line
        return
    place = "inside that band" if band.inside else "outside that band"
    if not band.inside:
        place = "above that band" if own.total_return > band.high else "below that band"
    yield f"{line}; the ratings' {_percent(own.total_return)} lies {place}"


def _certain_lines(summary: ScoreSummary) -> Iterator[str]:
    main = summary.main
    if main is not None:
        yield f"mean directional alpha of a call: {_percent(main.value)}, {_sentence(main)}"
    paths = next((row for row in summary.certain if row.metric == "path_permutation"), None)
    if paths is not None:
        p_value = "n/a" if paths.p_value is None else f"{paths.p_value:.3f}"
        why = f" ({paths.reason})" if paths.reason else ""
        yield f"rating paths permuted between tickers: p {p_value}{why}"
    plural = "trial is" if summary.known_trials == 1 else "trials are"
    yield (
        f"at least {summary.known_trials} distinct {plural} known of this universe and window: "
        "the more, the less one good figure says"
    )


def _sentence(main: Certain) -> str:
    if main.low is None or main.high is None:
        return f"no interval ({main.reason or 'no call takes a side'}): nothing can be said of luck"
    count = f"n {main.n}"
    if main.effective_n is not None:
        count += f", effective n {main.effective_n:.0f}"
    return f"95 % interval {_percent(main.low)} to {_percent(main.high)} ({count}): {main.verdict}"


def _interval(row: Certain | None) -> str:
    if row is None or row.low is None or row.high is None:
        return f"n/a ({row.reason})" if row is not None and row.reason else "n/a"
    return f"{_percent(row.low)} to {_percent(row.high)}"


def _first(books: Sequence[BookLine], name: str) -> BookLine | None:
    return next((book for book in books if book.book == name), None)


def show_revisions(revisions: Sequence[TableDiff]) -> None:
    """Print what a newer snapshot says otherwise of the scored instruments."""
    for diff in revisions:
        if diff.equal:
            continue
        say(
            f"{diff.table}: {len(diff.changed)} values changed, {len(diff.added)} rows added, "
            f"{len(diff.removed)} removed"
        )
        for change in diff.changed[:_SHOWN_REVISIONS]:
            old, new = change.old or "none", change.new or "none"
            say(printable(f"  {change.key} {change.column}: {old} -> {new}"))
        for key in diff.removed[:_SHOWN_REVISIONS]:
            say(printable(f"  {key}: removed"))
        hidden = max(len(diff.changed) - _SHOWN_REVISIONS, 0)
        if hidden:
            say(f"  and {hidden} more: backtester snapshot diff lists them")


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:+.3f} %"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.2f}"


def _amount(value: float | None, *, percent: bool = False) -> str:
    """Return what is never below zero, without a sign."""
    if value is None:
        return "n/a"
    return f"{100 * value:.3f} %" if percent else f"{value:.2f}"


# ------------------------------------------------------------------------------------ two runs


def comparison_document(database: Path, first: RunManifest, second: RunManifest) -> dict[str, Any]:
    """Return what differs between two runs and how they came out, as JSON values."""
    settings = sorted({*first.identity, *second.identity} - _LONG)
    shared = shared_cells(database, first.run_id, second.run_id)
    runs = (first.run_id, second.run_id)
    return {
        "runs": list(runs),
        "settings": {
            name: [first.identity.get(name), second.identity.get(name)]
            for name in settings
            if first.identity.get(name) != second.identity.get(name)
        },
        "scores": [_figures(summary) for run in runs for summary in score_summaries(database, run)],
        "shared": asdict(shared),
    }


def _figures(summary: ScoreSummary) -> dict[str, Any]:
    main, own = summary.main, _first(summary.books, "ratings")
    return {
        "run": summary.run_id,
        "score": summary.score_id,
        "horizon": summary.horizon,
        "mean_directional_alpha": main.value if main else None,
        "low": main.low if main else None,
        "high": main.high if main else None,
        "reason": main.reason if main else None,
        "verdict": main.verdict if main else None,
        "total_return": own.total_return if own else None,
        "sharpe": own.sharpe if own else None,
        "max_drawdown": own.max_drawdown if own else None,
    }


def show_comparison(document: Mapping[str, Any]) -> None:
    """Print what `comparison_document` found."""
    settings = simple_table("setting", *document["runs"])
    for name, values in document["settings"].items():
        settings.add_row(name, *(printable(str(value), keep="") for value in values))
    write(settings)
    scores = simple_table("run", "score", "horizon")
    for heading in ("mean directional\nalpha", "95 % interval", "book", "sharpe", "max drawdown"):
        scores.add_column(heading, justify="right", vertical="bottom")
    for row in document["scores"]:
        known = row["low"] is not None
        scores.add_row(
            row["run"],
            row["score"],
            str(row["horizon"]),
            _percent(row["mean_directional_alpha"]),
            f"{_percent(row['low'])} to {_percent(row['high'])}" if known else "n/a",
            _percent(row["total_return"]),
            _number(row["sharpe"]),
            _percent(row["max_drawdown"]),
        )
    write(scores)
    shared = document["shared"]
    say(f"{shared['shared']} cells decided by both, {shared['same']} of them with the same rating")
    if shared["n"]:
        say(
            f"directional alpha over the {shared['n']} cells where both take a side: "
            f"{_percent(shared['first_alpha'])} and {_percent(shared['second_alpha'])}"
        )
