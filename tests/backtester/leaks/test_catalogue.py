"""The catalogue of leaks, each built in on purpose: the audit finds it, and names where it is.

The fixture has rows of every table on both sides of the cutoff. What the product tells of it is
the same in every changed world; each leak below is the product with one guard taken out, or a
pipeline around it, and its text is not. `PROVEN` says for each leak where it is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from backtester.leaks.poison import CUT, REWRITTEN, Futures
from backtester.records import CellKey, ReturnRecord
from backtester.schema import SPLIT
from backtester.settlement import broker
from backtester.settlement.broker import ScoreRule
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from tests.support.leak_world import (
    CUTOFF,
    DAYS,
    TODAY,
    WORLD,
    Pipeline,
    answer,
    differences,
    told,
    tool_text,
)
from tests.support.snapshots import closes, make_instrument, make_snapshot, sessions_of
from tradingagents_core.errors import DataUnavailable, LookaheadError
from tradingagents_core.prompts import identity_notes
from tradingagents_core.protocols import Bars, Identity, Row

FULL = {"rewritten", "cut"}


def test_what_the_product_tells_is_the_same_in_every_world() -> None:
    assert differences(told) == {}


def test_the_fixture_is_alive_every_table_is_told_of_up_to_the_cutoff_and_no_further() -> None:
    text = answer(told, None).text
    for seen in ("2018-03-01", "500", "Calm AAA", "Calm None", "quiet week", "247.9", "Ada Early"):
        assert seen in text
    assert "60.0%" in text
    for unseen in ("900", "450", "Storm", "crash", "249", "248.7", "Zoe", "100.0%", "Beta", "Oil"):
        assert unseen not in text


# ------------------------------------------------------------------------------ the leaks


def seen_by(kind: type[AsOfView]) -> Pipeline:
    """Return the honest pipeline behind a view of another class."""

    def pipeline(view: AsOfView, ticker: str, session: date) -> object:
        leaky = kind(
            view._snapshot,
            cutoff=view.cutoff,
            session=view.session,
            decision_time="close",
            on_read=lambda _: None,
        )
        return told(leaky, ticker, session)

    return pipeline


def rows_by(table: str, is_known: Callable[[dict[str, Any], date], bool]) -> Pipeline:
    """Return the pipeline behind a view that chooses the rows of one table by a rule of its own."""

    class Leaky(AsOfView):
        def rows(self, name: str, symbol: str | None = None, **window: Any) -> tuple[Row, ...]:
            if name != table:
                return super().rows(name, symbol, **window)
            stored = self._snapshot.table(table).sort_by("known_at").to_pylist()
            mine = [row for row in stored if row.get("instrument") == symbol]
            return tuple(
                Row(known_at=row.pop("known_at"), fields=row)
                for row in mine
                if is_known(row, self.session)
            )

    return seen_by(Leaky)


def all_bars(view: AsOfView, symbol: str) -> Bars:
    bars = view._snapshot.bars(symbol)
    prices = (bars.open, bars.high, bars.low, bars.close)
    opened, high, low, close = (values.copy() for values in prices)
    volume = bars.volume.astype(float)
    return Bars(
        sessions=bars.sessions.copy(), open=opened, high=high, low=low, close=close, volume=volume
    )


class TodaysCompany(AsOfView):
    """Show the company as it is when the data are captured: range and averages of all bars."""

    def bars(self, symbol: str, **window: Any) -> Bars:
        return all_bars(self, symbol) if symbol == "AAA" else super().bars(symbol, **window)


def adjusted_by_todays_splits(view: AsOfView, ticker: str, session: date) -> object:
    """Show prices on the scale of the newest split, as a vendor's files have them."""
    actions = view._snapshot.actions(ticker)
    later = (actions.kind == SPLIT) & (actions.ex_sessions > np.datetime64(session))
    factor = float(np.prod(actions.numerator[later] / actions.denominator[later]))
    return (view.bars(ticker).close / factor).tolist()


def filled_backwards(view: AsOfView, ticker: str, session: date) -> object:
    """Fill gaps with the next value, then cut at the session."""
    del ticker
    gapped = view._snapshot.bars("GAP")
    at = int(np.searchsorted(gapped.sessions, np.datetime64(session)))
    filled = gapped.close[at] if at < len(gapped) else None
    return None if filled is None else float(filled)


def warmed_up_from_today(view: AsOfView, ticker: str, session: date) -> object:
    """Keep so many of the newest bars of all, then cut at the session."""
    bars = view._snapshot.bars(ticker)
    window = slice(-30, None)
    kept = bars.sessions[window] <= np.datetime64(session)
    return bars.close[window][kept].tolist()


def warmed_up_from_the_clock(view: AsOfView, ticker: str, session: date) -> object:
    """Look so many days back from the day on which the program runs."""
    first = np.datetime64(datetime.now(UTC).date()) - np.timedelta64(365 * 30, "D")
    bars = view.bars(ticker)
    return bars.close[bars.sessions >= first].tolist()


class TodaysName(AsOfView):
    """Give an instrument the newest name and sector that there are."""

    def identity(self, symbol: str) -> Identity:
        newest = self._snapshot.identity_rows("AAA")[-1]
        known = super().identity(symbol)
        return replace(known, name=newest.name, sector=newest.sector)


def stamped(view: AsOfView, ticker: str, session: date) -> object:
    """Say when the data were retrieved."""
    return {**told(view, ticker, session), "note": f"data retrieved on {datetime.now(UTC).date()}"}


def in_local_time(view: AsOfView, ticker: str, session: date) -> object:
    """Write instants in the zone of the machine."""
    return {**told(view, ticker, session), "cutoff": f"{view.cutoff.astimezone():%H:%M}"}


class WithoutFilter(AsOfView):
    """Let every row through; what stands behind the filter is still there."""

    def _visible_end(self, known_at: Any) -> int:
        return len(known_at)


class WithoutFilterAndCheck(WithoutFilter):
    """Let every row through, and look at none of them."""

    def _check(self, *arguments: Any) -> None:
        return

    def _early(self, *arguments: Any) -> None:
        return None


class LastBar(AsOfView):
    """Read one session further, through whatever door there is."""

    def bars(self, symbol: str, **window: Any) -> Bars:
        every = all_bars(self, symbol) if symbol == "AAA" else super().bars(symbol, **window)
        stop = int(np.searchsorted(every.sessions, np.datetime64(self.session), side="right")) + 1
        cut = slice(0, stop)
        return Bars(
            sessions=every.sessions[cut], open=every.open[cut], high=every.high[cut],
            low=every.low[cut], close=every.close[cut], volume=every.volume[cut],
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Name a leak, and what the audit must say of it.

    Attributes:
        number: Of the catalogue.
        pipeline: The leak.
        worlds: Worlds in which its text must differ.
        tables: Tables whose canary words must stand in it.
    """

    number: str
    pipeline: Pipeline
    worlds: frozenset[str]
    tables: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.number}-{getattr(self.pipeline, '__name__', '')}"


def leak(number: str, pipeline: Pipeline, worlds: set[str], *tables: str) -> Leak:
    return Leak(
        number=number, pipeline=pipeline, worlds=frozenset(worlds), tables=frozenset(tables)
    )


def ended(row: dict[str, Any], today: date) -> bool:
    return row["period_end"] <= today


def observed(row: dict[str, Any], today: date) -> bool:
    return row["period"] <= today


def traded(row: dict[str, Any], today: date) -> bool:
    return row["transaction_date"] <= today


def whatever(row: dict[str, Any], today: date) -> bool:
    return True


LEAKS = (
    leak("L03", seen_by(TodaysCompany), FULL),
    leak("L04", rows_by("statements", ended), FULL, "statements"),
    leak("L05", rows_by("macro", observed), FULL, "macro"),
    leak("L06", rows_by("insider", traded), FULL, "insider"),
    leak("L07", rows_by("social", whatever), FULL, "social"),
    leak("L08", rows_by("prediction_markets", whatever), FULL),
    leak("L09", stamped, {"moved"}),
    leak("L09", in_local_time, {"moved"}),
    leak("L10", adjusted_by_todays_splits, FULL),
    leak("L11", filled_backwards, FULL),
    leak("L12", warmed_up_from_today, {"cut"}),
    leak("L12", warmed_up_from_the_clock, {"moved"}),
    leak("L13", seen_by(TodaysName), FULL, "instruments"),
    leak("L16", seen_by(WithoutFilterAndCheck), FULL, "news", "macro", "social"),
    leak("L16", seen_by(LastBar), FULL),
)


@pytest.mark.parametrize("planted", LEAKS, ids=[one.name for one in LEAKS])
def test_a_planted_leak_changes_the_text_and_its_canary_names_the_table(planted: Leak) -> None:
    found = differences(planted.pipeline)

    assert set(found) >= planted.worlds
    assert "moved" not in planted.worlds or set(found) == planted.worlds
    if planted.tables:
        assert found["rewritten"].tables >= planted.tables


def test_a_view_without_its_filter_is_refused_before_anybody_reads_the_text() -> None:
    answered = answer(seen_by(WithoutFilter), None)
    assert answered.trouble is not None
    assert answered.trouble[0] == "lookahead"
    assert not issubclass(LookaheadError, Exception)


# ---------------------------------------------------------------------- outcomes and pairs


RULE = ScoreRule(horizon=5, entry_rule="next_open", decision_time="close", benchmark="^GSPC")
DECIDED = CellKey(session=TODAY, ticker="AAA")
Settle = Callable[..., ReturnRecord]


def changed_returns(settle: Settle, known_at: datetime, today: date) -> Iterator[str]:
    """Yield the worlds, changed after an instant, in which a return is another one."""
    true = settle(DECIDED, "Buy", snapshot=WORLD, rule=RULE)
    for way in (REWRITTEN, CUT):
        world = Futures(WORLD).world(way, known_at, today).snapshot
        if settle(DECIDED, "Buy", snapshot=world, rule=RULE) != true:
            yield way.name


def test_a_return_is_the_same_in_every_world_from_the_instant_on_at_which_it_is_known() -> None:
    settled = broker.settle(DECIDED, "Buy", snapshot=WORLD, rule=RULE)
    assert settled.resolved_at is not None
    exit_session = DAYS[45]
    assert settled.exit_session == exit_session
    assert list(changed_returns(broker.settle, settled.resolved_at, exit_session)) == []


def test_a_window_settled_before_it_is_over_is_found() -> None:
    # The very next day four of its sessions have not happened.
    next_close = datetime(2018, 3, 2, 21, tzinfo=UTC)
    assert list(changed_returns(broker.settle, next_close, DAYS[41])) == ["rewritten", "cut"]


def test_a_fill_comes_after_everything_that_the_decision_saw() -> None:
    settled = broker.settle(DECIDED, "Buy", snapshot=WORLD, rule=RULE)
    assert settled.entry_at is not None
    assert settled.entry_at > CUTOFF
    same = replace(RULE, entry_rule="close")
    at_the_close = broker.settle(DECIDED, "Buy", snapshot=WORLD, rule=same)
    assert at_the_close.entry_at == CUTOFF
    assert "same_bar" in at_the_close.flags


def paired_by_position(snapshot: Snapshot, session: date) -> float:
    """Compare two instruments by the places of their newest bars, as joined lists do."""
    tokyo, york = snapshot.bars("7203.T"), snapshot.bars("^GSPC")
    at = tokyo.position(session)
    assert at is not None
    return float(york.close[len(york) - (len(tokyo) - at)])


def paired_by_date(snapshot: Snapshot, session: date) -> float:
    york = snapshot.bars("^GSPC")
    at = york.position(session)
    assert at is not None
    return float(york.close[at])


def test_bars_paired_by_position_depend_on_holidays_to_come_and_by_date_they_do_not() -> None:
    # 2018-03-21 is a holiday in Tokyo, 2018-03-30 in New York.
    until = date(2018, 4, 4)
    days = {
        symbol: [day for day in sessions_of(symbol, "2018-03-01", 30) if day <= until]
        for symbol in ("7203.T", "^GSPC")
    }
    assert [len(days["7203.T"]), len(days["^GSPC"])] == [24, 24]
    snapshot = make_snapshot(
        {
            symbol: closes((day, 100.0 + at) for at, day in enumerate(known))
            for symbol, known in days.items()
        },
        instruments=[make_instrument("7203.T", currency="JPY", exchange="Tokyo")],
    )  # fmt: skip
    session, cutoff = date(2018, 3, 13), datetime(2018, 3, 27, 20, tzinfo=UTC)
    cut = Futures(snapshot).world(CUT, cutoff, cutoff.date()).snapshot
    assert paired_by_date(cut, session) == paired_by_date(snapshot, session)
    assert paired_by_position(cut, session) != paired_by_position(snapshot, session)


# ----------------------------------------------------------------- silence, and a static name


class Silent(AsOfView):
    """Answer like a source that keeps recent items alone: with nothing, and no word about it."""

    def require(self, table: str, symbol: str | None = None) -> None:
        return

    def rows(self, table: str, symbol: str | None = None, **window: Any) -> tuple[Row, ...]:
        try:
            super().require(table, symbol)
        except DataUnavailable:
            return ()
        return super().rows(table, symbol, **window)

    def withheld(self, table: str, symbol: str | None = None, **window: Any) -> int:
        return 0


def says_that_it_cannot_know(view: AsOfView) -> bool:
    text = tool_text(view, "get_news")
    return text.startswith("DATA_UNAVAILABLE: ") and "recent items alone" in text


def test_a_source_without_a_past_says_so_and_one_that_is_silent_is_told_apart() -> None:
    poor = make_snapshot(
        {"AAA": closes((day, 100.0) for day in DAYS)}, absent={"news": "recent items alone"}
    )
    reads: list[Any] = []

    def viewed(kind: type[AsOfView]) -> AsOfView:
        return kind(poor, cutoff=CUTOFF, session=TODAY, decision_time="close", on_read=reads.append)

    assert says_that_it_cannot_know(viewed(AsOfView))
    assert [(read.table, read.rows) for read in reads if read.table == "news"] == [("news", 0)]
    assert not says_that_it_cannot_know(viewed(Silent))


@pytest.mark.parametrize("static", [True, False])
def test_a_name_of_the_capture_is_marked_in_every_prompt_and_one_with_a_range_is_not(
    static: bool,
) -> None:
    snapshot = make_snapshot(
        {"AAA": closes((day, 100.0) for day in DAYS)},
        instruments=[make_instrument("AAA", sector="Oil", static=static)],
    )
    view = AsOfView(
        snapshot, cutoff=CUTOFF, session=TODAY, decision_time="close", on_read=lambda _: None
    )
    mark = "Identity: as known when the data were captured, not as of the simulated date"
    assert (mark in identity_notes(view.identity("AAA"))) is static


# ------------------------------------------------------------------------------ all of them

_HERE = "test_a_planted_leak_changes_the_text_and_its_canary_names_the_table"
PROVEN: dict[str, Sequence[str]] = {
    "L01": ("test_a_window_settled_before_it_is_over_is_found",),
    "L02": ("test_leakcheck.py::test_lessons_read_back_without_a_date_are_found",),
    **{f"L{number:02d}": (_HERE,) for number in range(3, 14)},
    "L14": (
        "test_a_fill_comes_after_everything_that_the_decision_saw",
        "test_leakcheck.py::test_a_fill_at_the_close_that_the_decision_used_names_the_row",
    ),
    "L15": ("test_bars_paired_by_position_depend_on_holidays_to_come_and_by_date_they_do_not",),
    "L16": (_HERE, "test_a_view_without_its_filter_is_refused_before_anybody_reads_the_text"),
    "L17": ("test_a_source_without_a_past_says_so_and_one_that_is_silent_is_told_apart",),
}


def test_every_leak_of_the_catalogue_is_built_in_somewhere() -> None:
    assert sorted(PROVEN) == [f"L{number:02d}" for number in range(1, 18)]
    planted = {one.number for one in LEAKS}
    assert planted == {number for number, tests in PROVEN.items() if _HERE in tests}
