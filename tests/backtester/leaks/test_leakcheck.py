"""The leak audit passes on a clean run and fails, naming the place, on every planted leak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import run
from backtester.leaks.audit import LeakReport, leakcheck
from backtester.records import CellKey, ReturnRecord
from backtester.runs.folder import RunFolder
from backtester.runs.journal import read_ledger
from backtester.settlement import broker
from backtester.settlement.memory import MemoryBook, VisibleLessons
from backtester.snapshots.view import AsOfView
from backtester.walk.cell import Parts
from tests.support.snapshots import split
from tests.support.workspaces import Workspace, make_workspace
from tradingagents_core.errors import LookaheadError
from tradingagents_core.protocols import Identity


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path, actions=[split("AAA", "2018-02-14", 4, 1)])


def audit(workspace: Workspace, parts: Parts | None = None, **changes: Any) -> LeakReport:
    config = workspace.config(grid="daily", end=date(2018, 1, 8), horizon=2, **changes)
    result = run(config, parts=parts)
    return leakcheck(RunFolder(result.folder), workspace.data, parts=parts)


def report_calls(workspace: Workspace) -> int:
    """Return the number of calls of the only run: of its cells and of its lessons."""
    (folder,) = (path for path in workspace.reports.iterdir() if path.is_dir())
    ledger = read_ledger(RunFolder(folder).journal_path)
    rows = [*ledger.cells.values(), *ledger.lessons.values()]
    return sum(len(row.calls) for row in rows)


def test_a_clean_run_passes_and_says_what_was_compared(workspace: Workspace) -> None:
    report = audit(workspace)

    assert report.clean
    # Two tickers on the five sessions from 2018-01-02 to 01-08, in three worlds; the lessons that
    # are settled after the last cutoff are compared too.
    assert report.ways == ("rewritten", "cut", "moved")
    assert report.cutoffs == 5
    assert report.prompts == 3 * report_calls(workspace)
    assert report.lessons == 3 * 10
    assert report.fills == 10
    assert report.lessons_shown > 0
    assert report.reads > 0
    lines = {line.table: line for line in report.tables}
    assert min(lines[name].prompts for name in ("bars", "actions", "lessons", "clock")) > 0
    assert lines["news"].note.startswith("not in the snapshot")
    assert "static identity: none here" in report.not_covered[0]


class News:
    """Note what an audit tells of itself."""

    def __init__(self) -> None:
        self.worlds: tuple[str, ...] = ()
        self.steps = 0
        self.done: Counter[str] = Counter()

    def began(self, subject: str, steps: int, worlds: Sequence[str]) -> None:
        self.worlds, self.steps = tuple(worlds), steps

    def advanced(self, steps: int, world: str, findings: int | None) -> None:
        assert findings is not None
        self.done[world] += steps


def test_the_number_of_workers_changes_no_finding(workspace: Workspace) -> None:
    config = workspace.config(tickers=("AAA",), end=date(2018, 1, 3), grid="daily", horizon=1)
    folder = RunFolder(run(config).folder)

    news = [News(), News()]
    alone, together = (
        leakcheck(folder, workspace.data, workers=count, progress=told)
        for count, told in zip((1, 2), news, strict=True)
    )
    # Each world is told under its name, and all of its steps.
    for told in news:
        assert told.worlds == ("rewritten", "cut", "moved")
        assert told.done == dict.fromkeys(told.worlds, told.steps)

    assert alone.clean
    assert together == alone


# ------------------------------------------------------------------- outcomes that came too early


def settle_with_whatever_is_there(key: CellKey, rating: str | None, **world: Any) -> ReturnRecord:
    """Settle as if the next session's data were all that is needed, on all bars of today."""
    return replace(broker.settle(key, rating, **world), resolved_at=early_due(key, **world))


def early_due(key: CellKey, snapshot: Any, rule: Any) -> datetime:
    """Say that a return is known at midnight after its decision, whatever its horizon."""
    return datetime(key.session.year, key.session.month, key.session.day, tzinfo=UTC) + timedelta(
        days=1
    )


def test_a_return_settled_on_bars_that_have_not_happened_is_found(workspace: Workspace) -> None:
    leaky = Parts(settle=settle_with_whatever_is_there, due_at=early_due)
    report = audit(workspace, leaky)

    assert not report.clean
    first = report.findings[0]
    assert first.check in ("lesson", "settlement")
    assert first.where.startswith("AAA|2018-01-02|0")
    assert {finding.check for finding in report.findings} & {"lesson", "prompt"}


def test_a_lesson_that_is_due_too_early_is_found_also_where_the_return_is_right(
    workspace: Workspace,
) -> None:
    report = audit(workspace, Parts(due_at=early_due))

    assert not report.clean
    assert report.findings[0].check in ("lesson", "settlement")


# ------------------------------------------------------------------------ lessons without a date


class DatelessBook(MemoryBook):
    """Read every lesson back that there is, whenever it was learnt."""

    def visible(self, key: CellKey, cutoff: datetime) -> VisibleLessons:
        return super().visible(key, datetime(9999, 1, 1, tzinfo=UTC))


def test_lessons_read_back_without_a_date_are_found(workspace: Workspace) -> None:
    report = audit(workspace, Parts(book=DatelessBook))

    assert not report.clean
    first = report.findings[0]
    assert first.check == "prompt"
    assert "Portfolio Manager" in first.where
    # The word of a decision whose result is still to come stands in the prompt.
    assert (first.table, first.column) == ("lessons", "decision")
    assert "FUTURE-CANARY.lessons.decision" in first.detail


# ------------------------------------------------------------------ prices scaled by later splits


class HindsightView(AsOfView):
    """Adjust prices for every split of the snapshot, also for those that are still to come."""

    def _span(self, *arguments: Any) -> Any:
        span = super()._span(*arguments)
        every = len(self._cache.splits(span.instrument).known_at)
        return replace(span, epoch=self._cache.epoch(span.instrument, every), splits=every)


def test_prices_adjusted_for_a_later_split_are_found(workspace: Workspace) -> None:
    report = audit(workspace, Parts(view=HindsightView))

    assert not report.clean
    first = report.findings[0]
    assert first.check == "prompt"
    assert "AAA|2018-01-02|0, Market Analyst" in first.where
    assert first.table == "actions"
    assert " became " in first.detail
    assert {line.table: line.leaks for line in report.tables}["actions"] > 0


# --------------------------------------------------------------------- a fill at the decision's bar


def settle_at_the_same_close(key: CellKey, rating: str | None, **world: Any) -> ReturnRecord:
    """Fill at the very close that the decision used, and say nothing of it."""
    returned = broker.settle(key, rating, **world)
    close = datetime(key.session.year, key.session.month, key.session.day, 21, tzinfo=UTC)
    return replace(returned, entry_at=close, entry_session=key.session)


def test_a_fill_at_the_close_that_the_decision_used_names_the_row(workspace: Workspace) -> None:
    report = audit(workspace, Parts(settle=settle_at_the_same_close))

    fills = [finding for finding in report.findings if finding.check == "fill"]
    assert len(fills) == 10
    assert fills[0].where == "AAA|2018-01-02|0"
    assert "same_bar" in fills[0].detail


def test_a_same_bar_fill_that_is_asked_for_is_flagged_and_passes(workspace: Workspace) -> None:
    assert audit(workspace, entry="close").clean


def test_a_window_that_was_never_entered_is_no_fill(workspace: Workspace) -> None:
    # The data end on 2018-03-13: the last decision is filled on a session that is not there.
    config = workspace.config(
        tickers=("AAA",), grid="2018-03-12,2018-03-13", start=date(2018, 3, 12),
        end=date(2018, 3, 13), horizon=1,
    )  # fmt: skip
    report = leakcheck(RunFolder(run(config).folder), workspace.data)

    assert report.clean
    assert report.cutoffs == 2
    assert report.fills == 1
    assert report.lessons == 3


# --------------------------------------------------------------------- the wall clock


class DatedView(AsOfView):
    """Put the day on which the program runs into a name, as a report's header would."""

    def identity(self, symbol: str) -> Identity:
        known = super().identity(symbol)
        return replace(known, name=f"{known.name} (retrieved {datetime.now(UTC).date()})")


def test_the_wall_clock_in_a_prompt_is_found_and_named(workspace: Workspace) -> None:
    report = audit(workspace, Parts(view=DatedView))

    assert not report.clean
    assert {finding.table for finding in report.findings} == {"clock"}
    assert "with another clock and time zone" in report.findings[0].detail


# --------------------------------------------------------------------- a view without its filter


class FilterlessView(AsOfView):
    """Show every row, and rely on the check alone."""

    def _visible_end(self, known_at: Any) -> int:
        return len(known_at)


class BlindView(FilterlessView):
    """Show every row, with the check gone as well."""

    def _check(self, *arguments: Any) -> None:
        return

    def _early(self, *arguments: Any) -> None:
        return None


def test_a_view_without_its_filter_ends_the_run(workspace: Workspace) -> None:
    with pytest.raises(LookaheadError):
        run(workspace.config(), parts=Parts(view=FilterlessView))


def test_a_view_without_filter_and_check_is_found_by_the_audit(workspace: Workspace) -> None:
    report = audit(workspace, Parts(view=BlindView))

    assert not report.clean
    assert {finding.check for finding in report.findings} >= {"prompt", "read"}
