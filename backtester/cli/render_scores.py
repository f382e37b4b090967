"""What is printed of scores: books, the band of chance, and what the interval lets one say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backtester.cli.render import fits, say, simple_table, write, write_fitting, write_folded
from backtester.cli.render_parts import (
    NO_INTERVAL,
    SHORT_SAMPLE,
    p_word,
    percent,
    show_folds,
    show_horizons,
    show_parts,
)
from backtester.score.definition import DEFAULT_SCORE
from backtester.score.labels import OWN, cost_words
from backtester.statistics.precision import FEWEST_SESSIONS
from backtester.store.comparison import compared, setting_words
from backtester.store.score_views import FEWEST_DRAWS
from backtester.store.scores import score_lines, score_summary
from backtester.store.summary import rows_of
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from rich.table import Table

    from backtester.snapshots.diff import TableDiff
    from backtester.store.comparison import Compared
    from backtester.store.scores import BookLine, Certain, ScoreLine, ScoreSummary

_SHOWN_REVISIONS: Final = 5
FEWEST_TO_CHOOSE: Final = 10
"""Books below which a reader is told that a choice among them says little of choices."""

_NONE: Final = "n/a"
_NAMES: Final = {"buy_and_hold": "buy and hold", "equal_weight": "equal weight"}


def show_scores(
    database: Path, run_id: str, *, score_id: str | None = None, scopes: Sequence[str] = ()
) -> None:
    """Print a run's own score, or the one that is named, and its figures by more parts."""
    summary = score_summary(database, run_id, score_id=score_id)
    if summary is not None:
        _show(database, summary, _charged_lines(database, summary))
        show_parts(database, summary, scopes)


def show_definition(database: Path, run_id: str, score_id: str) -> None:
    """Print all that a score is a function of, and what of it is otherwise in the run's own."""
    score = compared(database, run_id, score_id)
    there = {line.score_id for line in score_lines(database, run_id)}
    own = {}
    if DEFAULT_SCORE in there:
        own = _settings(compared(database, run_id, DEFAULT_SCORE))
    say(f"score {score_id} of run {run_id}: {printable(score.label, keep='')}")
    table = simple_table("rule", "this score", "the run's own")
    for name, value in _settings(score).items():
        words, before = setting_words(value), setting_words(own.get(name, value))
        row = (name, words, "" if words == before else before)
        table.add_row(*(printable(word, keep="") for word in row))
    write_folded(table)
    say("")


_RULES: Final = (
    *("horizon", "horizons", "entry_rule", "decision_time", "benchmark", "benchmark_map"),
    *("first", "last", "fold", "universe", "slots", "rebalance", "fractional", "start_cash"),
    *("charge_model_cost", "haircut", "rf_annual", "placebo_draws", "seed"),
)


def _settings(score: Compared) -> dict[str, Any]:
    """Return a definition with policy and costs spelt out, in the order in which it is read."""
    rules = score.definition
    weights = rules["policy"]["weights"]
    return {
        "policy": rules["policy"]["name"],
        "hold": rules["policy"]["hold"],
        "weights": {
            name: "carry" if weight is None else weight for name, weight in weights.items()
        },
        **rules["costs"],
        **{name: rules[name] for name in _RULES},
        "snapshot": f"{score.snapshot_name} {rules['snapshot_id'][:12]}",
    }


def show_score_table(database: Path, run_id: str) -> None:
    """Print all scores of a run side by side, each with what it differs by."""
    lines = score_lines(database, run_id)
    wide = simple_table("score", "differs from the run's own by")
    narrow = simple_table("")
    for table in (wide, narrow):
        for heading in ("directional\nalpha", "95 % interval", "book", "buy and\nhold", "Sharpe"):
            table.add_column(heading, justify="right", vertical="bottom")
    names = [printable(line.label, keep="") for line in lines]
    for number, (line, name) in enumerate(zip(lines, names, strict=True), start=1):
        figures = (
            percent(line.mean_directional_alpha),
            _interval(line),
            percent(line.total_return, digits=2),
            percent(line.buy_and_hold, digits=2),
            _marked(_number(line.sharpe), line.sessions),
        )
        wide.add_row(line.score_id, "" if name == OWN else name, *figures)
        narrow.add_row(str(number), *figures)
    if fits((wide,)):
        write(wide)
    else:
        for number, (line, name) in enumerate(zip(lines, names, strict=True), start=1):
            say(f"{number}  {line.score_id}: {name}")
        if not fits((narrow,)):
            narrow.padding = (0, 0)
        write(narrow)
    # Without a ratio there is no figure that could have a star.
    if any(_is_short(line.sessions) and line.sharpe is not None for line in lines):
        say(f"*: of fewer than {SHORT_SAMPLE} session returns: says next to nothing of a year")


def _show(database: Path, summary: ScoreSummary, charged: Iterable[str]) -> None:
    for line in _rule_lines(summary):
        say(line)
    if summary.no_book is not None:
        say(f"no book: {printable(summary.no_book)}")
    else:
        write_fitting(*((table,) for table in _book_tables(summary)))
        shown = (*benchmark_lines(summary), *charged, *_band_lines(summary))
        for line in (*shown, *sharpe_lines(summary)):
            say(line)
    show_horizons(database, summary)
    show_folds(database, summary)
    say("")
    for line in certain_lines(summary):
        say(line)


def _rule_lines(summary: ScoreSummary) -> Iterator[str]:
    own = summary.score_id == DEFAULT_SCORE
    name = "the run's own score" if own else f"score {summary.score_id}"
    yield f"book of {name}: {_rules(summary)}"
    if not own:
        yield f"differs from the run's own score by: {printable(summary.label, keep='')}"


def _rules(summary: ScoreSummary) -> str:
    rules = summary.definition
    policy = rules["policy"]["name"]
    hold = "" if rules["policy"]["hold"] == "carry" else f", hold {rules['policy']['hold']}"
    return (
        f"{policy}{hold}, entry {rules['entry_rule']}, {cost_words(rules['costs'])}; decisions of "
        f"{summary.first_date} to {summary.last_date}, snapshot "
        f"{printable(summary.snapshot_name, keep='')}"
    )


# -------------------------------------------------------------------------------------- the book


_BOOK_HEADINGS: Final = (
    *("total\nreturn", "a year", "volatility\na year", "Sharpe\na year", "its 95 %\ninterval"),
    *("deepest\nfall", "turnover\na year"),
)


def _book_tables(summary: ScoreSummary) -> Iterator[Table]:
    """Yield the table of books, the widest first; the ratings' interval is told beneath too."""
    rows = [(_name_of(book, summary.books), _book_cells(book)) for book in summary.books]
    for kept, close in (
        (range(len(_BOOK_HEADINGS)), False),
        ((0, 3, 4, 5), False),
        ((0, 3, 4, 5), True),
        ((0, 3, 5), True),
    ):
        table = simple_table("book")
        if close:
            table.padding = (0, 0)
        for place in kept:
            table.add_column(_BOOK_HEADINGS[place], justify="right", vertical="bottom")
        for name, figures in rows:
            table.add_row(name, *(figures[place] for place in kept))
        yield table


def _book_cells(book: BookLine) -> tuple[str, ...]:
    return (
        percent(book.total_return, digits=2),
        _marked(percent(book.cagr, digits=2), book.sessions),
        _marked(_amount(book.volatility, percent=True), book.sessions),
        _marked(_number(book.sharpe), book.sessions),
        _range(book.sharpe_low, book.sharpe_high),
        percent(book.max_drawdown, digits=2),
        _marked(_amount(book.turnover), book.sessions),
    )


def _name_of(book: BookLine, books: Sequence[BookLine]) -> str:
    lanes = sum(other.book == book.book for other in books)
    lane = f" (trial {book.trial})" if lanes > 1 else ""
    return _NAMES.get(book.book, book.book) + lane


def _charged_lines(database: Path, summary: ScoreSummary) -> Iterator[str]:
    """Say what the models' bill took out of the book, also where that was nothing."""
    rows = rows_of(database, _CHARGED, [summary.run_id, summary.score_id])
    for row in rows:
        lane = f" (trial {row['trial']})" if len(rows) > 1 else ""
        yield f"models' bill charged{lane}: {row['value']:,.2f} USD"


_CHARGED: Final = """
SELECT trial, value FROM metrics
WHERE run_id = ? AND score_id = ? AND subject = 'ratings' AND metric = 'model_cost'
    AND value IS NOT NULL
ORDER BY trial"""


def benchmark_lines(summary: ScoreSummary) -> Iterator[str]:
    """Say what the benchmark made over the sessions of the book, and what of it the book shares."""
    own, against = summary.book("ratings"), summary.against
    if own is None or against is None or own.benchmark_return is None:
        return
    basis = f" ({against.basis} basis)" if against.basis else ""
    parts = [percent(own.benchmark_return, digits=2) + basis]
    if own.excess_return is not None:
        parts.append(f"excess of the ratings {percent(own.excess_return, digits=2)}")
    if own.beta is not None:
        parts.append(f"beta {own.beta:.2f}")
    if own.jensen_alpha is not None:
        error = f" (se {_amount(own.jensen_alpha_se, percent=True)})"
        alpha = percent(own.jensen_alpha, digits=2)
        words = f"Jensen's alpha {alpha} a year{error if own.jensen_alpha_se is not None else ''}"
        parts.append(_marked(words, own.sessions))
    name = f"benchmark {printable(against.benchmark or '', keep='')}".rstrip()
    yield (f"{name} over the same sessions ({against.first} to {against.last}): {', '.join(parts)}")


def _band_lines(summary: ScoreSummary) -> Iterator[str]:
    band, own = summary.band, summary.book("ratings")
    if band is None or band.low is None or band.high is None or own is None:
        few = "none drawn" if band is None else _few_draws(band.draws)
        yield f"random ratings: {few}"
        return
    line = (
        f"random ratings: 5-95 % of {band.draws} books made {percent(band.low, digits=2)} to "
        f"{percent(band.high, digits=2)}"
    )
    if own.total_return is None or band.share_below is None:
        yield line
        return
    place = "inside that band"
    if not band.inside:
        place = "above that band" if own.total_return > band.high else "below that band"
    yield f"{line}; the ratings' {percent(own.total_return, digits=2)} lies {place}"


def _few_draws(draws: int) -> str:
    books = f"{draws} book{'' if draws == 1 else 's'}"
    return f"{books} drawn, and a 5-95 % band takes {FEWEST_DRAWS}: score with --placebo 200"


def sharpe_lines(summary: ScoreSummary) -> Iterator[str]:
    """Say what the book's Sharpe ratio is worth after so many trials and so few sessions."""
    own = summary.book("ratings")
    if own is None or own.sharpe is None:
        yield f"Sharpe ratio of the ratings: n/a; {_trials(summary)}"
        yield from _star_lines(summary)
        return
    interval = "no interval, too few returns"
    if own.sharpe_low is not None and own.sharpe_high is not None:
        interval = f"95 % {_range(own.sharpe_low, own.sharpe_high)}"
    yield (
        f"Sharpe ratio of the ratings {_number(own.sharpe)} ({interval}), {_trials(summary)}; "
        f"{_deflated(own, summary)}"
    )
    needed, there = own.min_track_record_length, own.sessions or 0
    if needed is not None and needed > there:
        yield (
            f"to tell it from 0 takes {math.ceil(needed):,} session returns, and there are {there}"
        )
    if own.pbo is not None:
        few = own.pbo_books is not None and own.pbo_books < FEWEST_TO_CHOOSE
        yield (
            f"probability of overfitting, {_of_books(own.pbo_books)}: {own.pbo:.2f}"
            f"{'; of so few books it says little' if few else ''}"
        )
    yield from _star_lines(summary)


def _of_books(count: int | None) -> str:
    """Say over how many books a probability of overfitting was had."""
    if count is None:
        return "over the stored books of related trials"
    return f"over {count} stored books of related trials"


def _star_lines(summary: ScoreSummary) -> Iterator[str]:
    """Say what the star of a figure a year means, if the table of books has one."""
    short = [
        book.sessions
        for book in summary.books
        if _is_short(book.sessions)
        and any(v is not None for v in (book.cagr, book.volatility, book.sharpe, book.turnover))
    ]
    if short:
        yield f"*: of only {short[0]} session returns: a figure a year says next to nothing then"


def _trials(summary: ScoreSummary) -> str:
    now = summary.trials_by_now
    plural = "" if now == 1 else "s"
    when = " by now" if now > summary.known_trials else ""
    return f"at least {now} trial{plural} of these instruments and days{when}"


def _deflated(own: BookLine, summary: ScoreSummary) -> str:
    """Say what is left of a ratio after the trials that were known when it was scored."""
    if own.deflated_sharpe is None:
        few = (own.sessions or 0) < FEWEST_SESSIONS
        return f"cannot be deflated: {'too few returns' if few else 'no shape of its returns'}"
    now, then = summary.trials_by_now, summary.known_trials
    for_whom, again = "", ""
    if now > then:
        for_whom = f" for the {then} known when scored"
        again = f"; score it again with --again for {now}"
    return (
        f"deflated {own.deflated_sharpe:.2f}{for_whom}: the chance that the true one is above the "
        f"best of so many without skill{again}"
    )


# ------------------------------------------------------------------------------ what is believed


def certain_lines(summary: ScoreSummary) -> Iterator[str]:
    """Say what the interval and the permutations let one say of luck."""
    main = summary.main
    if main is not None:
        yield (
            f"mean directional alpha of a call, h={summary.horizon}: "
            f"{percent(main.value)}, {_sentence(main)}"
        )
    paths = next((row for row in summary.certain if row.metric == "path_permutation"), None)
    if paths is not None:
        why = f" ({NO_INTERVAL.get(paths.reason, paths.reason)})" if paths.reason else ""
        sided = "two-sided p" if paths.p_value is not None else "p"
        means = ""
        if paths.value is not None and summary.paths_expected is not None:
            means = f"; observed {percent(paths.value)}, mean of permuted paths "
            means += percent(summary.paths_expected)
        yield f"rating paths permuted between tickers: {sided} {p_word(paths.p_value)}{why}{means}"


def _sentence(main: Certain) -> str:
    if main.low is None or main.high is None:
        why = NO_INTERVAL.get(main.reason or "no_rows", main.reason)
        return f"no interval ({why}): nothing can be said of luck"
    count = f"n {main.n}"
    if main.effective_n is not None:
        count += f", effective n {main.effective_n:.0f}"
    return f"95 % interval {percent(main.low)} to {percent(main.high)} ({count}): {main.verdict}"


def _interval(row: ScoreLine) -> str:
    if row.low is None or row.high is None:
        return NO_INTERVAL.get(row.reason, row.reason or "n/a")
    return f"{100 * row.low:+.3f} to {percent(row.high)}"


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


def _is_short(sessions: int | None) -> bool:
    return sessions is not None and sessions < SHORT_SAMPLE


def _marked(figure: str, sessions: int | None) -> str:
    """Return a figure a year, marked where it comes from a short sample."""
    return f"{figure} *" if _is_short(sessions) and figure != _NONE else figure


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:+.2f}"


def _range(low: float | None, high: float | None) -> str:
    return "n/a" if low is None or high is None else f"{low:+.2f} to {high:+.2f}"


def _amount(value: float | None, *, percent: bool = False) -> str:
    """Return what is never below zero, without a sign."""
    if value is None:
        return _NONE
    return f"{100 * value:.2f} %" if percent else f"{value:.2f}"
