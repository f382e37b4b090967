"""A small world with rows of every table before and after one cutoff, and what a pipeline reads.

`WORLD` is a snapshot, `ASKED` the call of a pipeline at its cutoff (2018-03-01, New York's close).
`told` is an honest pipeline: whatever it can be told about an instrument, as one text.
`differences` calls a pipeline in every changed world and says where the text changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from backtester.leaks.child import Answer, Asked, Worlds
from backtester.leaks.clock import moved_clock
from backtester.leaks.poison import MOVED, WAYS, Place, Way, canaries_in
from backtester.schema import TABLES
from backtester.snapshots.snapshot import Snapshot
from backtester.snapshots.view import AsOfView
from tests.support.snapshots import (
    BarTuple,
    make_instrument,
    make_snapshot,
    sessions_of,
    split,
)
from tests.support.tables import macro_rows, news_rows, odds_rows, social_rows
from tradingagents_core.errors import NoMarketData
from tradingagents_core.prompts import identity_notes, instrument_line
from tradingagents_core.tools import TOOLS, run_tool
from tradingagents_core.tools.base import ToolLimits
from tradingagents_core.tools.social import social_posts

DAYS = sessions_of("AAA", "2018-01-02", 60)
TODAY = DAYS[40]
CUTOFF = datetime(2018, 3, 1, 21, tzinfo=UTC)
ASKED = Asked(ticker="AAA", session=TODAY.isoformat(), cutoff=CUTOFF.isoformat())
Pipeline = Callable[[AsOfView, str, date], object]


def bars(drift: float, days: list[date]) -> list[BarTuple]:
    """Make bars that rise by a little more every day."""
    return [
        (day, 100 + drift * at, 101 + drift * at, 99 + drift * at, 100.5 + drift * at, 1000 + at)
        for at, day in enumerate(days)
    ]


def statements() -> pa.Table:
    """Make a quarter that was filed, one that was not yet, and a later filing of the first."""
    filed = [
        ("2017-12-31", "2018-02-01T21:30", 500.0),
        ("2018-01-31", "2018-03-10T21:30", 900.0),
        ("2017-12-31", "2018-03-10T21:30", 450.0),
    ]
    rows = [
        {
            "instrument": "AAA", "statement": "income", "item": "revenue",
            "period_end": date.fromisoformat(end), "period_months": 3,
            "known_at": datetime.fromisoformat(at).replace(tzinfo=UTC),
            "known_at_basis": "published", "form": "10-Q", "derived": False,
            "value": value, "unit": "USD",
        }
        for end, at, value in filed
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["statements"].arrow)


def insider() -> pa.Table:
    """Make a trade that was filed, and one that was made by the cutoff and filed after it."""
    rows = [
        {
            "instrument": "AAA", "id": f"form-{at}", "form": "4",
            "transaction_date": date.fromisoformat(day),
            "known_at": datetime.fromisoformat(at).replace(tzinfo=UTC),
            "known_at_basis": "published", "insider": name, "code": "S", "acquired": False,
            "shares": 100.0, "price": 100.0,
        }
        for day, at, name in [
            ("2018-02-10", "2018-02-13T22:00", "Ada Early"),
            ("2018-02-27", "2018-03-05T22:00", "Zoe Late"),
        ]
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["insider"].arrow)


def make_world() -> Snapshot:
    """Make the snapshot: AAA renamed and split after the cutoff, GAP without a bar at it."""
    return make_snapshot(
        {
            "AAA": bars(1.0, DAYS),
            "GAP": bars(0.5, DAYS[:39] + DAYS[41:]),
            "^GSPC": bars(0.1, DAYS),
        },
        actions=[split("AAA", DAYS[10], 2), split("AAA", DAYS[50], 5)],
        instruments=[
            make_instrument("AAA", name="Alpha Inc.", sector="Toys", valid_to=DAYS[45]),
            make_instrument(
                "AAA", symbol="BBB", name="Beta Corp.", sector="Oil", valid_from=DAYS[45]
            ),
        ],
        statements=statements(),
        insider=insider(),
        news=news_rows(
            [
                (owner, at, f"{title} {owner}")
                for owner in ("AAA", None)
                for at, title in [("2018-02-28T15:00", "Calm"), ("2018-03-12T15:00", "Storm")]
            ]
        ),
        social=social_rows(
            [
                ("AAA", "reddit", "2018-02-28T10:00", "quiet week", None),
                ("AAA", "reddit", "2018-03-12T10:00", "what a crash", "bearish"),
            ]
        ),
        macro=macro_rows(
            [
                ("CPIAUCSL", "2018-01-01", "2018-02-14T13:30", 247.9),
                ("CPIAUCSL", "2018-02-01", "2018-03-13T12:30", 249.0),
                ("CPIAUCSL", "2018-01-01", "2018-03-13T12:30", 248.7),
            ]
        ),
        prediction_markets=odds_rows(
            [
                ("m1", "Will the Fed raise the rate?", "Yes", "2018-02-28T12:00", 0.6),
                ("m1", "Will the Fed raise the rate?", "Yes", "2018-03-21T18:00", 1.0),
            ]
        ),
    )  # fmt: skip


WORLD = make_world()

_ARGUMENTS = {
    "get_stock_data": {"symbol": "AAA", "start_date": "2018-01-02", "end_date": "2030-01-01"},
    "get_indicators": {"symbol": "AAA", "indicator": "rsi,close_10_ema", "look_back_days": 30},
    "get_verified_market_snapshot": {"symbol": "AAA"},
    "get_global_news": {"look_back_days": 30},
    "get_macro_indicators": {"indicator": "CPIAUCSL"},
    "get_prediction_markets": {"topic": "Fed rate"},
}


def tool_text(view: AsOfView, name: str) -> str:
    """Return what one tool answers about AAA."""
    return run_tool(view, name, json.dumps(_ARGUMENTS.get(name, {"ticker": "AAA"}))).text


def told(view: AsOfView, ticker: str, session: date) -> dict[str, str]:
    """Return all that a pipeline can be told: every tool, the posts, the identity."""
    del session
    texts = {name: tool_text(view, name) for name in TOOLS}
    texts["posts"] = social_posts(view, ticker, "reddit", ToolLimits())
    identity = view.identity(ticker)
    texts["identity"] = "\n".join((instrument_line(identity), *identity_notes(identity)))
    try:
        view.bars("GAP")
    except NoMarketData as error:
        texts["gap"] = str(error)
    return texts


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Say what a pipeline gave in one changed world where it differs from the true one."""

    way: str
    text: str
    canaries: tuple[Place, ...]

    @property
    def tables(self) -> set[str]:
        """Tables whose canary words stand in it."""
        return {place.table for place in self.canaries}


def answer(pipeline: Pipeline, way: Way | None, snapshot: Snapshot = WORLD) -> Answer:
    """Call a pipeline at the cutoff of one world."""
    clock: AbstractContextManager[Any] = moved_clock() if way == MOVED else nullcontext()
    with clock:
        return Worlds(snapshot, way, "close").call(pipeline, ASKED)


def differences(pipeline: Pipeline, snapshot: Snapshot = WORLD) -> dict[str, Difference]:
    """Call a pipeline in every world, and return those in which its text is another one."""
    true = answer(pipeline, None, snapshot)
    assert not true.raised, true.text
    assert true.trouble is None
    found = {}
    for way in WAYS:
        changed = answer(pipeline, way, snapshot)
        assert changed.trouble is None
        if changed.text != true.text:
            places = canaries_in(changed.text)
            found[way.name] = Difference(way=way.name, text=changed.text, canaries=places)
    return found
