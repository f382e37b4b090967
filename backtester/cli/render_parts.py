"""What is printed of parts of a score: by horizon, fold, ticker, month and rating."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backtester.cli.render import say, simple_table, write_fitting
from backtester.errors import UsageError
from backtester.records import RATINGS
from backtester.store.fold_books import fold_books
from backtester.store.scores import part_lines
from backtester.store.unresolved import pending_horizons
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from backtester.store.fold_books import FoldBook
    from backtester.store.scores import PartLine, ScoreSummary
    from backtester.store.unresolved import PendingHorizon

PARTS: Final = ("ticker", "month", "rating", "fold")
"""What figures can be split by, beside horizons."""

MOST_FOLDS: Final = 12
"""Folds that are printed without being asked for."""

SHORT_SAMPLE: Final = 60
"""Session returns below which a reader is warned of what is given a year."""

NO_RATIO: Final[Mapping[str | None, str]] = {
    "no_rows": "no session",
    "too_few_rows": "too few returns",
    "too_few_returns": "too few returns",
    "no_variation": "no variation",
    "equity_not_positive": "nothing left",
}
"""Reason -> what is printed of it, where the interval of a Sharpe ratio would stand."""

NO_INTERVAL: Final[Mapping[str | None, str]] = {
    "too_few_windows": "too few windows",
    "too_few_clusters": "too few sessions",
    "too_few_tickers": "too few tickers",
    "no_rows": "no call with alpha",
    "no_variation": "no variation",
}
"""Reason -> what is printed of it, where an interval or p-value would stand."""

_ORDER: Final = {rating: place for place, rating in enumerate(RATINGS)}


@dataclass(frozen=True, kw_only=True)
class _Heading:
    """Say how one column of a table of parts is headed, and in which layouts it is.

    Attributes:
        words: Heading.
        least: It is in the narrowest layout too.
    """

    words: str
    least: bool = False


_HIT_RATE: Final = "hit\nrate"
_HEADINGS: Final = (
    _Heading(words="mean\nalpha", least=True),
    _Heading(words="directional\nalpha", least=True),
    _Heading(words="its 95 %\ninterval", least=True),
    _Heading(words="n", least=True),
    _Heading(words="effective\nn"),
    _Heading(words="p", least=True),
    _Heading(words=_HIT_RATE),
    _Heading(words="rank\nIC"),
)


_NARROWEST: Final = (1, 2, 3)
"""Directional alpha, its interval and n: what no terminal is too narrow for."""


def show_horizons(database: Path, summary: ScoreSummary) -> None:
    """Print what the calls of a score earned, one line for each horizon."""
    if not summary.horizons:
        return
    say("")
    names = {line.horizon: f"h={line.horizon}" for line in summary.horizons}
    if len(names) > 1:
        names[summary.horizon] += " *"
    _write("horizon", [(names[line.horizon], line) for line in summary.horizons])
    if len(names) > 1:
        say(f"h: sessions from decision to exit; *: the score's own{_pending(summary)}")
    waiting = pending_horizons(database, summary.run_id, summary.score_id)
    for line in pending_lines(summary, waiting):
        say(line)


def pending_lines(summary: ScoreSummary, waiting: Sequence[PendingHorizon]) -> Iterator[str]:
    """Say in one line which horizons wait for a newer snapshot, and since when they could not."""
    if not waiting:
        return
    counts = ", ".join(
        f"{'all' if line.pending == line.decisions else f'{line.pending} of'} {line.decisions} "
        f"decisions at h={line.horizon}"
        for line in waiting
    )
    dates = [line.earliest for line in waiting if line.earliest is not None]
    last = waiting[0].last
    ends = f" (its last session here: {last})" if last is not None else ""
    first = f", the earliest on {min(dates)}" if dates else ""
    yield (
        f"pending: {counts}: their windows end after snapshot "
        f"{printable(summary.snapshot_name, keep='')}{ends}{first}; settle them with "
        f"score {summary.run_id} --snapshot NEWER"
    )


def _pending(summary: ScoreSummary) -> str:
    return "" if any(line.decisions for line in summary.horizons) else "; no decision has an alpha"


def show_folds(database: Path, summary: ScoreSummary) -> None:
    """Print what the calls of a score and its book made in each of its folds, if not many."""
    if not summary.folds:
        return
    say("")
    if len(summary.folds) > MOST_FOLDS:
        say(
            f"{len(summary.folds)} folds: --by fold prints them, alpha_by_fold_all and "
            "book_by_fold_all have them"
        )
        return
    _write(f"fold, h={summary.horizon}", [(line.member, line) for line in summary.folds])
    _show_fold_books(database, summary)


def _show_fold_books(database: Path, summary: ScoreSummary) -> None:
    """Print what the book of the ratings made in each fold, lane by lane."""
    if summary.no_book is not None:
        return
    say("")
    lines = fold_books(database, summary.run_id, summary.score_id)
    if not lines:
        say("no figures of the book by fold are in this score: --again makes it with them")
        return
    several = len({line.trial for line in lines}) > 1
    names = [f"{line.fold} (trial {line.trial})" if several else line.fold for line in lines]
    shown = list(zip(names, lines, strict=True))
    every = tuple(range(len(_FOLD_HEADINGS)))
    write_fitting(
        (_fold_table(shown, every),),
        (_fold_table(shown, every, close=True),),
        (_fold_table(shown, (0, 1, 2, 3, 5), close=True),),
        (_fold_table(shown, (0, 1, 5), close=True),),
    )
    short = any(line.sharpe is not None and line.sessions < SHORT_SAMPLE for line in lines)
    star = f"; *: of fewer than {SHORT_SAMPLE} session returns" if short else ""
    say(
        "one book, cut: a fold begins with what is held then, and the last one ends with the "
        f"book{star}"
    )


_FOLD_HEADINGS: Final = (
    "session\nreturns",
    "book",
    "buy and\nhold",
    "Sharpe\na year",
    "its 95 %\ninterval",
    "deepest\nfall",
)


def _fold_table(
    lines: Sequence[tuple[str, FoldBook]], places: Sequence[int], *, close: bool = False
) -> Table:
    table = simple_table("fold, book")
    if close:
        table.padding = (0, 0)
    for place in places:
        table.add_column(_FOLD_HEADINGS[place], justify="right", vertical="bottom", no_wrap=True)
    for name, line in lines:
        figures = _fold_cells(line)
        table.add_row(name, *(figures[place] for place in places))
    return table


def _fold_cells(line: FoldBook) -> tuple[str, ...]:
    interval = NO_RATIO.get(line.sharpe_reason, line.sharpe_reason or "n/a")
    if line.sharpe_low is not None and line.sharpe_high is not None:
        interval = f"{line.sharpe_low:+.2f} to {line.sharpe_high:+.2f}"
    ratio = "n/a"
    if line.sharpe is not None:
        ratio = f"{line.sharpe:+.2f}{' *' if line.sessions < SHORT_SAMPLE else ''}"
    return (
        str(line.sessions),
        percent(line.total_return, digits=2),
        percent(line.buy_and_hold, digits=2),
        ratio,
        interval,
        percent(line.max_drawdown, digits=2),
    )


def scopes_of(text: str) -> tuple[str, ...]:
    """Read what figures are to be split by, such as ``ticker,month``.

    Raises:
        UsageError: A word that is none of `PARTS`.
    """
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    strange = [word for word in words if word not in PARTS]
    if strange or not words:
        raise UsageError(f"--by: write one or more of {','.join(PARTS)}, not {text!r}")
    return words


def show_parts(database: Path, summary: ScoreSummary, scopes: Sequence[str]) -> None:
    """Print what the calls of a score earned by each of the parts, at its own horizon."""
    for scope in scopes:
        if scope == "fold" and 0 < len(summary.folds) <= MOST_FOLDS:
            continue  # Printed already, without being asked for.
        found = part_lines(database, summary.run_id, summary.score_id, scope)
        lines = [line for line in found if line.horizon == summary.horizon]
        lines.sort(key=lambda line: (_ORDER.get(line.member, len(_ORDER)), line.member))
        if not lines:
            say(f"no figures by {scope}" + (": score with --fold 6M" if scope == "fold" else ""))
            continue
        say("")
        _write(f"{scope}, h={summary.horizon}", [(line.member, line) for line in lines])
        if scope == "fold":
            _show_fold_books(database, summary)


def _write(title: str, lines: Sequence[tuple[str, PartLine]]) -> None:
    if not lines:
        return
    every = tuple(range(len(_HEADINGS)))
    least = tuple(place for place in every if _HEADINGS[place].least)
    # What no line has is no column: only whole scores and folds have a rank IC.
    if all(line.rank_ic is None for _, line in lines):
        every = every[:-1]
    without_hits = tuple(place for place in every if _HEADINGS[place].words != _HIT_RATE)
    tables = (
        _table(title, lines, every),
        _table(title, lines, every, close=True),
        _table(title, lines, without_hits, close=True),
        _table(title, lines, least, close=True),
        _table(title, lines, _NARROWEST, close=True),
    )
    write_fitting(*((table,) for table in tables))


def _table(
    title: str, lines: Sequence[tuple[str, PartLine]], places: Sequence[int], *, close: bool = False
) -> Table:
    table = simple_table(title)
    if close:
        table.padding = (0, 0)
    for place in places:
        table.add_column(_HEADINGS[place].words, justify="right", vertical="bottom", no_wrap=True)
    for name, line in lines:
        figures = _figures(line)
        table.add_row(printable(name, keep=""), *(figures[place] for place in places))
    return table


def _figures(line: PartLine) -> tuple[str, ...]:
    interval = NO_INTERVAL.get(line.reason, line.reason or "n/a")
    if line.low is not None and line.high is not None:
        interval = f"{100 * line.low:+.3f} to {percent(line.high)}"
    return (
        percent(line.mean_alpha),
        percent(line.mean_directional_alpha),
        interval,
        str(line.n or 0),
        _whole(line.effective_n),
        p_word(line.p_value),
        "n/a" if line.hit_rate is None else f"{100 * line.hit_rate:.1f} %",
        "n/a" if line.rank_ic is None else f"{line.rank_ic:+.3f}",
    )


def _whole(value: Any) -> str:
    return "n/a" if value is None else f"{value:.0f}"


def percent(value: float | None, *, digits: int = 3) -> str:
    """Return a fraction in percent with its sign; alphas have three digits, books two."""
    return "n/a" if value is None else f"{100 * value:+.{digits}f} %"


def p_word(value: float | None) -> str:
    """Return a p-value; one that would round to nothing is told as below a thousandth."""
    if value is None:
        return "n/a"
    return f"{value:.3f}" if value >= 0.0005 else "<0.001"
