"""Several voices fill one table together, each under its own name; figures are never doubled."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from backtester.errors import UsageError
from backtester.freeze.ask import Step
from backtester.freeze.freezing import load_plan
from backtester.freeze.plan import FreezePlan
from backtester.schema import TABLES
from backtester.snapshots.snapshot import verify_snapshot
from backtester.vendors.base import Capture, NoData, RateLimited, Wanted
from tests.backtester.freeze.test_freezing import Scripted, bars, refuse, run


def posts(wanted: Wanted, platform: str, *days: int) -> Capture:
    rows = [
        {
            "instrument": wanted.instrument,
            "id": f"{platform}-{day}",
            "known_at": datetime(2024, 3, day, 10, tzinfo=UTC),
            "platform": platform,
            "text": f"said on day {day}",
            "label": None,
        }
        for day in days
    ]
    table = pa.Table.from_pylist(rows, schema=TABLES["social"].arrow)
    return Capture(rows={"social": table}, source=platform, licence="its terms")


def social_plan(chain: str, **changes: Any) -> FreezePlan:
    flags = {"name": "mine", "symbols": "AAA", "start": "2024-03-01", "end": "2024-03-08"}
    more = {"warmup": 0, "tables": "social", "vendors": [f"social={chain}"]}
    return load_plan(None, {**flags, **more, **changes})


def test_joined_vendors_fill_a_table_together(tmp_path: Path) -> None:
    chatter = Scripted("stocktwits", lambda wanted: posts(wanted, "stocktwits", 4, 6))
    boards = Scripted("reddit", lambda wanted: posts(wanted, "reddit", 5))
    steps: list[Step] = []
    frozen = run(
        tmp_path,
        social_plan("stocktwits+reddit"),
        Scripted("yfinance", bars),
        chatter,
        boards,
        progress=steps.append,
    )
    table = frozen.snapshot.table("social")
    assert table.column("id").to_pylist() == ["stocktwits-4", "reddit-5", "stocktwits-6"]
    assert (steps[-1].vendor, steps[-1].rows) == ("stocktwits+reddit", 3)
    sources = {source.name for source in frozen.snapshot.manifest.sources}
    assert {"stocktwits social", "reddit social"} <= sources
    assert verify_snapshot(frozen.snapshot.path) == []


def test_of_joined_vendors_one_that_has_none_is_named_and_the_other_counts(tmp_path: Path) -> None:
    silent = Scripted("stocktwits", refuse(NoData("recent posts alone")))
    boards = Scripted("reddit", lambda wanted: posts(wanted, "reddit", 5))
    plan = social_plan("stocktwits + reddit, files")
    frozen = run(tmp_path, plan, Scripted("yfinance", bars), silent, boards)
    assert frozen.snapshot.table("social").num_rows == 1
    (note,) = [f for f in frozen.snapshot.manifest.findings if f.kind == "note"]
    assert note.message == "social of AAA: from reddit, for stocktwits: recent posts alone"
    mute = Scripted("reddit", refuse(NoData("none either")))
    frozen = run(
        tmp_path / "b", social_plan("stocktwits+reddit"), Scripted("yfinance", bars), silent, mute
    )
    assert frozen.snapshot.absent_reason("social") == (
        "stocktwits: recent posts alone; reddit: none either"
    )


def test_a_joined_vendor_that_asks_to_wait_stops_the_freeze(tmp_path: Path) -> None:
    boards = Scripted("reddit", lambda wanted: posts(wanted, "reddit", 5))
    limited = Scripted("stocktwits", refuse(RateLimited("later")))
    with pytest.raises(RateLimited):
        run(tmp_path, social_plan("reddit+stocktwits"), Scripted("yfinance", bars), boards, limited)
    chatter = Scripted("stocktwits", lambda wanted: posts(wanted, "stocktwits", 4))
    run(tmp_path, social_plan("reddit+stocktwits"), Scripted("yfinance", bars), boards, chatter)
    assert boards.asked == [("social", "AAA")]


def test_what_would_be_counted_twice_is_not_joined() -> None:
    for table, chain in (("bars", "yfinance+alpha_vantage"), ("insider", "sec+alpha_vantage")):
        with pytest.raises(UsageError, match="only news and social are joined"):
            social_plan("stocktwits", tables=table, vendors=[f"{table}={chain}"])
