"""What the models cost a book: every call of its lane, each at the instant simulated for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.records import CellRecord, LessonRecord
from backtester.score.compute import Score, score_decisions
from backtester.score.records import EquityRow
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from tests.support.records import make_call, make_lesson
from tests.support.scores import decided, figure, make_definition
from tests.support.snapshots import make_snapshot, sessions_of
from tests.support.workspaces import wave

DAYS = sessions_of("AAA", "2018-01-02", 30)


def waves() -> Snapshot:
    return make_snapshot(
        {
            name: wave(name, start="2017-10-02", count=160, phase=phase, drift=0.0004)
            for name, phase in (("AAA", 0.0), ("BBB", 2.0), ("^GSPC", 1.0))
        }
    )


def close_of(day: date) -> datetime:
    return market_of(waves(), "AAA").calendar.close_utc(day)


def cell(day: date, usd: float | None, **changes: Any) -> CellRecord:
    """Make a decision of one day, at its close, that cost something."""
    calls = (make_call(cost_usd=usd),)
    made = decided("AAA", day, "Buy", trial=changes.pop("trial", 0))
    return replace(made, **{"cutoff": close_of(day), "calls": calls, **changes})


def lesson(of: CellRecord, usd: float | None, resolved_at: datetime) -> LessonRecord:
    """Make the lesson of a decision, known from some instant on."""
    calls = (make_call(node="Reflector", cost_usd=usd),)
    return make_lesson(of.key, resolved_at=resolved_at, calls=calls)


def charged(
    cells: list[CellRecord], lessons: list[LessonRecord], *, charge: bool = True, **changes: Any
) -> Score:
    """Score with the models' bill."""
    fields: dict[str, Any] = {"start_cash": 1000.0, "charge_model_cost": charge, **changes}
    definition = make_definition(cells, waves(), **fields)
    return score_decisions(
        cells,
        definition,
        snapshot=waves(),
        results_root="r",
        lessons={row.key: row for row in lessons},
    )


def costs(score: Score, trial: int = 0) -> Mapping[date, float | None]:
    return {row.session: row.model_cost for row in ratings(score, trial)}


def ratings(score: Score, trial: int = 0) -> list[EquityRow]:
    rows = [row for row in score.rows["equity"] if isinstance(row, EquityRow)]
    return [row for row in rows if (row.book, row.trial) == ("ratings", trial)]


def test_a_lesson_is_paid_at_the_cutoff_at_which_it_was_written() -> None:
    # Known on the seventh day, an hour after its close: the cutoff of the eleventh is the first
    # that sees it, and pays for it.
    first, second = cell(DAYS[0], 1.0), cell(DAYS[10], 2.0)
    written = lesson(first, 4.0, close_of(DAYS[6]) + timedelta(hours=1))

    found = costs(charged([first, second], [written]))

    assert found[DAYS[1]] == found[DAYS[9]] == 1.0
    assert found[DAYS[10]] == found[DAYS[11]] == 7.0


def test_what_is_known_at_the_very_cutoff_is_paid_there() -> None:
    first, second, third = cell(DAYS[0], 1.0), cell(DAYS[5], 2.0), cell(DAYS[10], 3.0)
    found = costs(charged([first, second, third], [lesson(first, 4.0, close_of(DAYS[5]))]))
    assert (found[DAYS[4]], found[DAYS[5]], found[DAYS[10]]) == (1.0, 7.0, 10.0)


def test_lessons_after_the_last_cutoff_are_paid_when_they_are_known_at_the_latest_at_the_end() -> (
    None
):
    first, second = cell(DAYS[0], 1.0), cell(DAYS[1], 2.0)
    early = lesson(first, 4.0, close_of(DAYS[3]))
    late = lesson(second, 8.0, close_of(DAYS[25]))

    found = costs(charged([first, second], [early, late], horizon=5, horizons=(5,)))

    assert (found[DAYS[2]], found[DAYS[3]]) == (3.0, 7.0)
    assert max(found) == DAYS[6]
    assert found[DAYS[6]] == 15.0


def test_the_first_row_is_what_returns_are_measured_from_so_its_bill_is_in_the_first_return() -> (
    None
):
    """All cash until the second open: of 1000, less 1 paid, a Buy at no gain leaves 999."""
    score = charged([cell(DAYS[0], 1.0)], [], horizon=5)
    plain = charged([cell(DAYS[0], 1.0)], [], horizon=5, charge=False)

    rows, before = ratings(score), ratings(plain)
    assert (rows[0].model_cost, rows[0].equity) == (0.0, 1000.0)
    assert rows[1].equity == before[1].equity - 1.0
    assert rows[1].ret == pytest.approx((before[1].equity - 1.0) / 1000.0 - 1.0, abs=1e-15)
    total = figure(score, "total_return", subject="ratings").value
    assert total == pytest.approx((before[-1].equity - 1.0) / 1000.0 - 1.0, abs=1e-12)


def test_warm_up_is_paid_too_and_each_lane_pays_its_own() -> None:
    warm = cell(DAYS[0], 16.0, scored=False)
    other = cell(DAYS[0], 32.0, scored=False, trial=1)
    cells = [warm, other, cell(DAYS[5], 1.0), cell(DAYS[5], 2.0, trial=1)]

    score = charged(cells, [lesson(warm, 4.0, close_of(DAYS[2]))])

    assert list(costs(score).values())[:2] == [0.0, 21.0]
    assert list(costs(score, trial=1).values())[:2] == [0.0, 34.0]
    assert min(costs(score)) == DAYS[5]


def test_a_window_pays_for_its_own_decisions_and_their_lessons() -> None:
    cells = [cell(DAYS[0], 1.0), cell(DAYS[5], 2.0), cell(DAYS[10], 4.0)]
    lessons = [lesson(one, 8.0, one.cutoff + timedelta(days=1)) for one in cells]
    whole = charged(cells, lessons)
    parts = [
        charged(cells, lessons, first=DAYS[0], last=DAYS[5]),
        charged(cells, lessons, first=DAYS[6], last=DAYS[10]),
    ]
    paid = [figure(score, "model_cost", subject="ratings").value for score in (whole, *parts)]
    assert paid == [31.0, 19.0, 12.0]


@pytest.mark.parametrize("whose", ["decision", "lesson"])
def test_without_every_price_nothing_is_known_of_the_book_and_it_says_why(whose: str) -> None:
    one = cell(DAYS[0], None if whose == "decision" else 1.0)
    taught = lesson(one, None if whose == "lesson" else 1.0, close_of(DAYS[3]))

    score = charged([one], [taught])

    assert score.no_book is not None
    assert "the price of rulebook/rulebook-1 is unknown" in score.no_book
    assert ratings(score) == []
    for name in ("total_return", "model_cost"):
        row = figure(score, name, subject="ratings")
        assert (row.value, row.reason) == (None, score.no_book)
    # What owes nothing to the models is there all the same.
    assert figure(score, "total_return", subject="buy_and_hold").value is not None
    assert figure(score, "mean_return", subject="decisions").value is not None


def test_a_decision_without_a_record_of_its_calls_has_an_unknown_bill_not_none() -> None:
    score = charged([cell(DAYS[0], 1.0), cell(DAYS[5], 1.0, calls=())], [])
    assert score.no_book is not None
    assert f"AAA|{DAYS[5]}|0 has no record of its model calls" in score.no_book


def test_a_cell_that_asked_nothing_owes_nothing() -> None:
    cells = [cell(DAYS[0], 1.0), cell(DAYS[5], 1.0, calls=(), status="no_data", rating=None)]
    assert figure(charged(cells, []), "model_cost", subject="ratings").value == 1.0


def test_where_nothing_is_charged_the_bill_is_empty_and_not_nothing() -> None:
    score = charged([cell(DAYS[0], 1.0)], [], charge=False)
    row = figure(score, "model_cost", subject="ratings")
    assert (row.value, row.reason) == (None, "not_charged")
    assert set(costs(score).values()) == {None}


def test_a_baseline_asks_no_model() -> None:
    score = charged([cell(DAYS[0], 1.0)], [])
    row = figure(score, "model_cost", subject="buy_and_hold")
    assert (row.value, row.reason) == (None, "not_charged")


def test_a_book_in_another_currency_cannot_pay_dollars() -> None:
    rows = wave("7203.T", start="2018-01-04", count=40, phase=1.0, drift=0.0)
    snapshot = make_snapshot({"7203.T": rows}, currency="JPY")
    one = replace(decided("7203.T", date(2018, 1, 9), "Buy"), calls=(make_call(cost_usd=1.0),))
    definition = make_definition([one], snapshot, charge_model_cost=True)
    with pytest.raises(UsageError, match="leave --charge-model-cost out"):
        score_decisions([one], definition, snapshot=snapshot, results_root="r")
