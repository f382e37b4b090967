"""Tables and progress for people; figures are rounded here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from backtester.cli.render_progress import StepBar
from backtester.store import publishing as store
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.records import CellRecord, LessonRecord
    from backtester.replies.recordings import NodeStats
    from backtester.runs.folder import RunList, RunManifest
    from backtester.walk.plan import Barrier, Plan
    from backtester.walk.progress import Standing

# A pipe has no width: nothing may be folded or cut off that a program will read.
_PIPE_WIDTH = 160
# Wider than any table: what one takes is measured at this width.
_NO_LIMIT = 100_000
# A folded column that is narrower than this is no longer read.
_LEAST_FOLDED = 24
# Blanks between two columns of a table.
_BETWEEN = 3
_BASES = {
    "price": "price basis: both sides without dividends",
    "total": "total basis: both sides with dividends",
}
_UNMOVED = "the portfolio is shown as it stands on every date: no decision changes what is held"
_OUT = Console(highlight=False, soft_wrap=True)
if not _OUT.is_terminal:
    _OUT = Console(highlight=False, soft_wrap=True, width=_PIPE_WIDTH)


class RichProgress(StepBar):
    """Show sessions, cells, hits, misses and the time left on standard error."""

    def __init__(self, word: str) -> None:
        super().__init__(word, "sessions")
        self._cells = self._hits = self._misses = 0

    def started(self, plan: Plan, standing: Standing) -> None:
        """Take the number of sessions, and warn of what is done again before anything is."""
        if self._bar.disable:
            cells = f"{plan.cells} cells at {len(plan.barriers)} cutoffs"
            self._bar.console.print(f"{self._word} {plan.run_id}: {cells} ...", markup=False)
        if plan.config.portfolio is not None and len(plan.barriers) > 1:
            self._bar.console.print(f"note: {_UNMOVED}", markup=False, soft_wrap=True)
        if plan.moved:
            self._bar.console.print(f"note: {plan.moved}", markup=False, soft_wrap=True)
        if standing.failed or standing.lessons:
            self._bar.console.print(redone_words(standing), markup=False, soft_wrap=True)
        self._task = self._bar.add_task("", total=len(plan.barriers), words="")

    def settled(self, lessons: Sequence[LessonRecord]) -> None:
        """Count the calls of lessons."""
        for lesson in lessons:
            self._count([call.hit for call in lesson.calls])

    def committed(self, barrier: Barrier, new: Sequence[CellRecord], kept: int) -> None:
        """Count the cells of one more session."""
        self._cells += len(new) + kept
        for cell in new:
            self._count([call.hit for call in cell.calls])
        if self._task is not None:
            words = f"{self._cells} cells  {self._hits} hits  {self._misses} misses"
            self._bar.update(self._task, advance=1, words=words)

    def finished(self) -> None:
        """Nothing to add: `__exit__` clears the line."""

    def _count(self, hits: Sequence[bool]) -> None:
        self._hits += sum(hits)
        self._misses += len(hits) - sum(hits)


def redone_words(standing: Standing) -> str:
    """Say what a run does again before it goes on, and what that may take."""
    again = []
    if standing.failed:
        again.append(f"{standing.failed} failed cells are decided again")
    if standing.lessons:
        again.append(f"{standing.lessons} lessons that failed are written again")
    cost = (
        f"{standing.cost_usd:.4f} USD"
        if standing.cost_usd is not None
        else f"of unknown cost ({standing.unknown})"
    )
    return (
        f"{' and '.join(again)}, and after them at most {standing.affected} later cells whose "
        f"lessons may change; worst case: {standing.calls} calls, {cost}"
    )


def show_run(database: Path, run_id: str, *, note: str = "", scopes: Sequence[str] = ()) -> None:
    """Print the first lines, rating table and book of a run, and what to ask next."""
    from backtester.cli.render_scores import show_scores

    summary = store.run_summary(database, run_id)
    for line in _first_lines(summary):
        say(line)
    for line in store.knowledge_lines(database, run_id):
        say(printable(line))
    for problem in store.problems(database, run_id):
        say(printable(problem))
    write(_rating_table(database, run_id))
    say(
        f"equal weight, every cell long: mean return {_percent(summary.equal_weight_return)}   "
        f"benchmark over the same windows: {_percent(summary.benchmark_return)} "
        f"({summary.benchmark_basis} basis)"
    )
    say("")
    show_scores(database, run_id, scopes=scopes)
    say("")
    bill = store.run_bill(database, run_id)
    if bill.calls:
        say(f"calls of the run: {bill.words()}")
    else:
        say("no model call is recorded, so what the decisions cost is unknown")
    paid = store.paid_words(database, run_id)
    if paid:
        say(f"paid: {paid}")
    if note:
        say(note)
    _OUT.print(f"\nrun   {run_id}\nroot  {summary.results_root or 'not finished'}\n\ntry:")
    for example in store.EXAMPLES:
        _OUT.print(f'  backtester sql "{example.format(run_id=run_id)}"', markup=False)


def _open_ends(summary: store.RunSummary) -> str:
    """Name what else a window can come to; most runs have none of it."""
    counted = {
        "with a missing bar": summary.missing_bar,
        "with bars in conflict": summary.conflict,
        "delisted": summary.delisted,
    }
    return "".join(f", {count} {name}" for name, count in counted.items() if count)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _first_lines(summary: store.RunSummary) -> Iterator[str]:
    warmup = f" ({summary.warmup} of them warm-up, not scored)" if summary.warmup else ""
    yield (
        f"{_count(summary.cells, 'cell')}{warmup}: {summary.unread} unread, "
        f"{summary.failed} failed, {summary.no_data} without data, "
        f"{summary.pending} pending{_open_ends(summary)}; "
        f"{summary.resolved} resolved"
    )
    held = (
        f"alpha: against {summary.benchmark} "
        f"({_BASES.get(summary.benchmark_basis, summary.benchmark_basis)})"
        if summary.benchmarks
        else "alpha: none, no scored decision has a benchmark"
    )
    yield (
        f"return: {summary.entry_rule} to the close of session d+{summary.horizon}, "
        f"with dividends; {held}"
    )
    if summary.overlapping_windows:
        yield (
            f"{summary.overlapping_windows} of {summary.n} windows share days with an earlier one "
            "of their ticker: the means below rest on fewer independent results than n says"
        )


def _rating_table(database: Path, run_id: str) -> Table:
    table = _table("rating")
    for heading in (
        "n",
        "resolved",
        "mean\nreturn",
        "mean\nalpha",
        "mean directional\nalpha",
        "hit rate",
    ):
        table.add_column(heading, justify="right", vertical="bottom")
    for row in store.rating_rows(database, run_id):
        table.add_row(
            row.rating or "(unread)",
            str(row.n),
            str(row.resolved),
            _percent(row.mean_return),
            _percent(row.mean_alpha),
            _percent(row.mean_directional_alpha),
            _share(row.hit_rate),
        )
    return table


def say(line: str) -> None:
    """Print one line: a terminal's is broken between words, a pipe's is whole."""
    _OUT.print(line, markup=False, soft_wrap=not _OUT.is_terminal)


def write(table: Table) -> None:
    """Print a table whole: one that is too wide runs on over the edge, and no figure is cut."""
    wide = natural_width(table)
    roomy = Console(highlight=False, soft_wrap=True, width=wide) if wide > _OUT.width else _OUT
    roomy.print(table)


def write_folded(table: Table) -> None:
    """Print a table no wider than the terminal: texts that are too long go on in the next line."""
    for column in table.columns:
        column.no_wrap, column.overflow, column.vertical = False, "fold", "top"
    _OUT.print(table, soft_wrap=False)


def write_fitting(*layouts: Sequence[Table]) -> None:
    """Print the first layout whose tables all fit the terminal, else the last one."""
    chosen = next(filter(fits, layouts), layouts[-1])
    for place, table in enumerate(chosen):
        if place:
            _OUT.print()
        write(table)


def fits(tables: Sequence[Table]) -> bool:
    """Say whether none of the tables is wider than the terminal."""
    return all(natural_width(table) <= _OUT.width for table in tables)


def natural_width(table: Table) -> int:
    """Return how many columns of a terminal a table takes if nothing of it is cut."""
    options = _OUT.options.update(width=_NO_LIMIT)
    return Measurement.get(_OUT, options, table).maximum


def simple_table(*headings: str) -> Table:
    """Return an empty table in the style of this program."""
    return _table(*headings)


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True, vertical="bottom")
    return table


def show_runs(runs: RunList) -> None:
    """Print one line for each run, oldest first, then those whose manifest does not read."""
    if not runs.manifests and not runs.damaged:
        _OUT.print("no runs yet: start one with 'backtester demo' or 'backtester run'")
        return
    rows = [
        {
            "run": manifest.run_id,
            "status": manifest.status,
            "cells": str(manifest.cells_planned),
            "what": _what(manifest),
            "created": manifest.created_at.replace("+00:00", "Z"),
            "root": (manifest.results_root or "")[:12],
        }
        for manifest in runs.manifests
    ]
    rows += [{"run": run.run_id, "status": "damaged"} for run in runs.damaged]
    write_fitting(*_runs_layouts(rows))


def _runs_layouts(rows: Sequence[Mapping[str, str]]) -> Iterator[tuple[Table]]:
    """Yield tables of runs, the widest first; ids, status and cells are whole in each of them."""
    least = ("run", "status", "cells")
    yield (_runs_table(rows, (*least, "what", "created", "root")),)
    yield (_runs_table(rows, (*least, "what", "created")),)
    for others in (("created",), ()):
        room = _OUT.width - natural_width(_runs_table(rows, (*least, *others))) - _BETWEEN
        if room >= _LEAST_FOLDED:
            yield (_runs_table(rows, (*least, "what", *others), folded=room),)
    yield (_runs_table(rows, least),)


def _runs_table(
    rows: Sequence[Mapping[str, str]], names: Sequence[str], *, folded: int | None = None
) -> Table:
    table = _table(*names)
    for column in table.columns if folded is not None else ():
        column.vertical = "top"
        if column.header == "what":
            column.width, column.no_wrap, column.overflow = folded, False, "fold"
    for row in rows:
        table.add_row(*(Text(printable(row.get(name, ""), keep="")) for name in names))
    return table


def _what(manifest: RunManifest) -> str:
    """Say in a few words what tells one run from another."""
    identity = manifest.identity
    tickers = identity["tickers"]
    shown = ",".join(tickers[:3]) + (f"+{len(tickers) - 3}" if len(tickers) > 3 else "")
    words = [shown, f"{identity['start']}..{identity['end']}"]
    words.append(identity["grid"] if isinstance(identity["grid"], str) else "list")
    words.append(f"h{identity['horizon']}")
    if manifest.label is not None:
        return f"{manifest.label}; {' '.join(words)}"
    usual = {"decision_time": "close", "entry": "next_open", "memory": "portfolio", "trials": 1}
    words += [f"{key}={identity[key]}" for key, word in usual.items() if identity[key] != word]
    return " ".join(words)


def show_manifest(manifest: RunManifest) -> None:
    """Print what a run was and what it was allowed to see."""
    identity = manifest.identity
    lines = {
        "run": manifest.run_id,
        "status": f"{manifest.status}, {_count(manifest.cells_planned, 'cell')} planned",
        "evidence": manifest.label or "recorded: prompts, replies and reads are kept",
        "tickers": ", ".join(identity["tickers"]),
        "dates": f"{identity['start']} to {identity['end']}, grid {_grid(identity['grid'])}",
        "decides": f"at the {identity['decision_time']}; fill {identity['entry']}, "
        f"exit after {identity['horizon']} sessions",
        "trials": f"{identity['trials']}, warm-up {identity['warmup']} sessions",
        "benchmark": identity["benchmark"] or "the market's own",
        "snapshot": f"{manifest.snapshot_name} ({manifest.snapshot_id[:12]})",
        **({} if manifest.label is not None else _asked(manifest)),
        "release": manifest.versions.get("tradingagents-backtester", "unknown"),
    }
    for word, text in lines.items():
        _OUT.print(f"{word:<12} {printable(str(text), keep='')}", markup=False)
    _OUT.print()


def _asked(manifest: RunManifest) -> dict[str, str]:
    """Return what models were asked and what they were shown; of an import nothing is known."""
    identity = manifest.identity
    return {
        "models": ", ".join(
            f"{tier} {model['provider']}/{model['model']}"
            for tier, model in sorted(manifest.models.items())
        ),
        "temperature": identity.get("temperature") or "not sent",
        "analysts": ", ".join(identity["analysts"]),
        "rounds": f"{identity['max_debate_rounds']} of debate, "
        f"{identity['max_risk_discuss_rounds']} of risk",
        "look-back": f"{identity['price_lookback']} sessions of prices, "
        f"{identity['news_lookback_days']} days of news",
        "estimated": "rows that only an estimate dates are "
        + {"lag": "shown from that day on"}.get(str(identity.get("estimated")), "withheld"),
        **_own_book(identity.get("portfolio")),
        "memory": identity["memory"],
        "prompts": manifest.prompt_fingerprint[:12],
    }


def _own_book(book: Mapping[str, Any] | None) -> dict[str, str]:
    """Say that a user's own book was shown, and that the run did not carry it forward."""
    if book is None:
        return {}
    return {
        "portfolio": f"the user's own of {book.get('as_of') or 'no stated day'}, "
        f"{_count(len(book.get('positions') or ()), 'position')}: shown as it stands on every date"
    }


def show_sights(database: Path, run_id: str) -> None:
    """Print what each node of a run was given of the snapshot."""
    rows = store.sights(database, run_id)
    if not rows:
        return
    wide, narrow = _table("node", "table"), _table("node\n  table")
    narrow.padding = (0, 0)
    for heading in ("reads", "rows", "window from", "to", "newest row known at"):
        wide.add_column(heading, justify="right", no_wrap=True)
        narrow.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    node = None
    for sight in rows:
        cells = (
            str(sight.reads),
            str(sight.rows),
            str(sight.first or "open"),
            str(sight.last or "open"),
            f"{sight.newest:%Y-%m-%d %H:%M}Z" if sight.newest else "no dated row",
        )
        wide.add_row(sight.node, sight.table, *cells)
        if sight.node != node:
            narrow.add_row(sight.node)
        narrow.add_row(f"  {sight.table}", *cells)
        node = sight.node
    write_fitting((wide,), (narrow,))
    _OUT.print()


def _grid(grid: object) -> str:
    return grid if isinstance(grid, str) else "of listed dates"


def show_stats(rows: Sequence[NodeStats]) -> None:
    """Print what a cache or a cassette holds, by node and model."""
    table = _table("node", "provider", "model")
    for heading in ("answers", "tokens in", "tokens out", "characters", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("oldest", no_wrap=True)
    table.add_column("newest", no_wrap=True)
    for row in rows:
        counts = (row.records, row.input_tokens, row.output_tokens, row.characters)
        words = ["n/a" if count is None else str(count) for count in counts]
        ages = (row.oldest[:10], row.newest[:10])
        names = (row.node, row.provider, row.model)
        cells = (*names, *words, f"{row.latency_s:.1f}", *ages)
        table.add_row(*(Text(printable(cell, keep="")) for cell in cells))
    write(table)


def show_settings(rows: Iterable[tuple[str, str, str, str]]) -> None:
    """Print every setting: name, default, whether it is part of the run id, and what it is."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("setting", "default", "run id", "what"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _OUT.print(table)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:+.3f} %"


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"
