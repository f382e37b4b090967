"""The leak audit passes on a clean run and fails, naming the place, on every planted leak."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backtester import broker
from backtester.backtest import run
from backtester.cell import Parts
from backtester.leakcheck import LeakReport, leakcheck
from backtester.memory import MemoryBook, VisibleLessons
from backtester.records import CellKey, ReturnRecord
from backtester.runs import RunFolder
from backtester.view import AsOfView
from tests.support.snapshots import split
from tests.support.workspaces import Workspace, make_workspace
from tradingagents_core.errors import LookaheadError


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path, actions=[split("AAA", "2018-02-14", 4, 1)])


def audit(workspace: Workspace, parts: Parts | None = None, **changes: Any) -> LeakReport:
    config = workspace.config(grid="daily", end=date(2018, 1, 12), horizon=3, **changes)
    result = run(config, parts=parts)
    return leakcheck(RunFolder(result.folder), workspace.data, parts=parts)


def test_a_clean_run_passes_and_says_what_was_compared(workspace: Workspace) -> None:
    report = audit(workspace)

    assert report.clean
    # Two tickers, eight sessions (2018-01-02 to 01-12 but the week-end... 9) in two futures.
    assert report.cutoffs == 9
    assert report.prompts > 2 * 18 * 10
    assert report.lessons == 2 * 2 * 6
    assert report.lessons_shown > 0
    assert report.reads > 0


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


# --------------------------------------------------------------------- a fill at the decision's bar


def settle_at_the_same_close(key: CellKey, rating: str | None, **world: Any) -> ReturnRecord:
    """Fill at the very close that the decision used, and say nothing of it."""
    returned = broker.settle(key, rating, **world)
    close = datetime(key.session.year, key.session.month, key.session.day, 21, tzinfo=UTC)
    return replace(returned, entry_at=close, entry_session=key.session)


def test_a_fill_at_the_close_that_the_decision_used_names_the_row(workspace: Workspace) -> None:
    report = audit(workspace, Parts(settle=settle_at_the_same_close))

    fills = [finding for finding in report.findings if finding.check == "fill"]
    assert len(fills) == 18
    assert fills[0].where == "AAA|2018-01-02|0"
    assert "same_bar" in fills[0].detail


def test_a_same_bar_fill_that_is_asked_for_is_flagged_and_passes(workspace: Workspace) -> None:
    assert audit(workspace, entry="close").clean


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
