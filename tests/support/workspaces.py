"""Make a workspace on disk (snapshot, cache, reports) in which small real runs take place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from backtester.config import RunConfig
from backtester.snapshots.manifest import Source
from backtester.snapshots.snapshot import Snapshot, write_snapshot
from tests.support.snapshots import (
    Action,
    BarTuple,
    Instrument,
    day_of,
    make_tables,
    sessions_of,
)

CAPTURED = datetime(2020, 1, 1, tzinfo=UTC)
INVENTED = Source(
    name="invented",
    vendor="this test",
    item="a formula",
    tables=("instruments", "bars", "actions"),
    licence="none needed",
    captured_at=CAPTURED,
)


def wave(symbol: str, *, start: str, count: int, phase: float, drift: float) -> list[BarTuple]:
    """Make bars that rise and fall: prices of cents, opens off the close, no two waves alike."""
    rows: list[BarTuple] = []
    for i, session in enumerate(sessions_of(symbol, start, count)):
        close = round(100 * (1 + drift * i) * (1 + 0.12 * math.sin(i / 9 + phase)), 2)
        opened = round(close * (1 + 0.004 * math.sin(i + phase)), 2)
        high, low = round(max(opened, close) * 1.01, 2), round(min(opened, close) * 0.99, 2)
        rows.append((session, opened, high, low, close, 10_000 + 37 * i))
    return rows


def wire(url: str) -> dict[str, Any]:
    """Return the settings of models that answer at an address in the form of OpenAI, asked once."""
    return {
        "provider": "openai_compatible",
        "base_url": url,
        "endpoint_alias": "stub",
        "quick_model": "stub-quick",
        "deep_model": "stub-deep",
        "max_retries": 0,
        "cell_retries": 0,
    }


@dataclass(frozen=True)
class Workspace:
    """A folder with a snapshot in it."""

    path: Path
    snapshot: Snapshot

    @property
    def data(self) -> Path:
        """Folder of snapshots and cache."""
        return self.path / "data"

    @property
    def reports(self) -> Path:
        """Folder of runs."""
        return self.path / "reports"

    def config(self, **changes: Any) -> RunConfig:
        """Make a run of two tickers over five weeks, with changes."""
        fields: dict[str, Any] = {
            "tickers": ("AAA", "BBB"),
            "start": date(2018, 1, 2),
            "end": date(2018, 2, 2),
            "grid": "weekly",
            "horizon": 3,
            "benchmark": "^GSPC",
            "snapshot": self.snapshot.name,
            "data_dir": self.data,
            "reports_dir": self.reports,
            # Tests of scores ask for them; all others would pay for books that they do not look at.
            "score_at_end": False,
        }
        return RunConfig(**{**fields, **changes})

    def wired(self, url: str, **changes: Any) -> RunConfig:
        """Make such a run whose models answer at an address."""
        return self.config(**{**wire(url), **changes})


def make_workspace(
    path: Path,
    bars: Mapping[str, Iterable[BarTuple]] | None = None,
    *,
    actions: Iterable[Action] = (),
    instruments: Iterable[Instrument] = (),
    start: date | None = None,
    end: date | str | None = None,
    name: str = "small",
) -> Workspace:
    """Write a snapshot of two waves and an index (or of ``bars``) and return its workspace."""
    if bars is None:
        bars = {
            "AAA": wave("AAA", start="2017-01-03", count=300, phase=0.0, drift=0.001),
            "BBB": wave("BBB", start="2017-01-03", count=300, phase=2.0, drift=-0.0005),
            "^GSPC": wave("^GSPC", start="2017-01-03", count=300, phase=1.0, drift=0.0003),
        }
    tables = make_tables(bars, actions=actions, instruments=instruments)
    sessions = [day for day in tables["bars"].column("session").to_pylist() if day]
    snapshot = write_snapshot(
        path / "data" / "snapshots" / name,
        tables,
        name=name,
        declared_start=start or min(sessions),
        declared_end=day_of(end) if end else max(sessions),
        sources=(INVENTED,),
        absent={},
        captured_at=CAPTURED,
    )
    return Workspace(path=path, snapshot=snapshot)
