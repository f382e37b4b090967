"""The event study at its edges, by hand: its first and last offset, dividends, other calendars."""

from __future__ import annotations

import pytest

from backtester.score.event_study import event_study
from backtester.score.records import EventRow
from backtester.settlement.decided import Decided
from backtester.snapshots.snapshot import Snapshot
from tests.support.scores import decided
from tests.support.snapshots import (
    closes,
    dividend,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)

DAYS = sessions_of("AAA", "2018-01-02", 45)
AT = 15
NEAR = 1e-12


def path(snapshot: Snapshot, benchmark: str = "BBB") -> dict[int, EventRow]:
    """Return the rows around one decision on AAA by offset."""
    event = Decided.of([decided("AAA", DAYS[AT], "Buy")])
    return {row.session_offset: row for row in event_study(event, {"AAA": benchmark}, snapshot)}


def against_total(prices: dict[object, float], **more: object) -> Snapshot:
    """Put AAA beside a benchmark that holds its dividends, and stands still."""
    return make_snapshot(
        {"AAA": closes(prices), "BBB": closes((day, 10.0) for day in DAYS)},  # type: ignore[arg-type]
        instruments=[make_instrument("BBB", basis="total")],
        **more,  # type: ignore[arg-type]
    )


def test_the_path_goes_from_ten_sessions_before_to_twenty_after() -> None:
    rises = {day: 100.0 * 1.01**at for at, day in enumerate(DAYS)}
    found = path(against_total(dict(rises)))

    assert list(found) == list(range(-10, 21))
    for offset, row in found.items():
        # Before the decision the return up to it counts, with its sign turned.
        wanted = 1.01**offset - 1 if offset >= 0 else -(1.01 ** (-offset) - 1)
        assert row.mean_path == pytest.approx(wanted, abs=NEAR)
        assert row.mean_excess == pytest.approx(0.01, abs=NEAR)


def test_dividends_count_from_their_ex_session_and_only_those_in_the_own_currency() -> None:
    flat = dict.fromkeys(DAYS, 50.0)
    found = path(
        against_total(
            dict(flat),
            actions=[
                dividend("AAA", DAYS[AT + 2], 1.0),
                dividend("AAA", DAYS[AT + 4], 7.0, currency="EUR"),
            ],
        )
    )
    assert found[1].mean_path == pytest.approx(0.0, abs=NEAR)
    assert found[2].mean_path == found[5].mean_path == pytest.approx(1 / 50, abs=NEAR)


def test_a_dividend_is_paid_on_the_shares_that_a_split_has_made() -> None:
    prices = {day: 100.0 if at <= AT else 25.0 for at, day in enumerate(DAYS)}
    found = path(
        against_total(
            dict(prices),
            actions=[split("AAA", DAYS[AT + 1], 4), dividend("AAA", DAYS[AT + 3], 0.5)],
        )
    )
    # Four shares of 25 for one of 100, then half a dollar on each.
    assert found[2].mean_path == pytest.approx(0.0, abs=NEAR)
    assert found[3].mean_path == pytest.approx(4 * 0.5 / 100, abs=NEAR)


def test_a_dividend_of_a_session_without_a_close_is_put_back_at_the_next_one() -> None:
    prices = {day: 50.0 for at, day in enumerate(DAYS) if at != AT + 2}
    found = path(against_total(dict(prices), actions=[dividend("AAA", DAYS[AT + 2], 1.0)]))
    assert (found[2].n, found[2].reason) == (0, "no_rows")
    assert found[3].mean_path == pytest.approx(1 / 50, abs=NEAR)


def test_a_benchmark_of_another_calendar_stands_at_its_close_of_that_date_or_the_last_before() -> (
    None
):
    """Tokyo was shut on 2018-02-12, New York open; the index then stands where it stood."""
    tokyo = [day for day in sessions_of("7203.T", "2018-01-04", 40) if day <= DAYS[-1]]
    shut = next(at for at, day in enumerate(DAYS) if day.isoformat() == "2018-02-12")
    levels = {day: 1_000.0 + 10.0 * at for at, day in enumerate(tokyo)}
    snapshot = make_snapshot({"AAA": closes((day, 100.0) for day in DAYS), "^N225": closes(levels)})

    found = path(snapshot, benchmark="^N225")

    start = levels[DAYS[AT]]
    same, before = levels[DAYS[shut + 1]], levels[DAYS[shut - 1]]
    assert found[shut + 1 - AT].mean_path == pytest.approx(1 - same / start, abs=NEAR)
    assert found[shut - AT].mean_path == pytest.approx(1 - before / start, abs=NEAR)
    assert found[shut - 1 - AT].mean_path == pytest.approx(1 - before / start, abs=NEAR)
