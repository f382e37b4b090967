"""Whether a large market freezes from files, opens and is read in the time and memory promised."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backtester.calendar import calendar_by_code
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.snapshots.view import AsOfView
from backtester.snapshots.view_cache import ViewCache
from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

SYMBOLS = 500
START, END = date(2009, 1, 2), date(2018, 12, 31)
FREEZE_LIMIT_S = 180.0
MEMORY_LIMIT_MB = 1_500.0
OPEN_LIMIT_S = 2.0
SLICE_LIMIT_S = 100e-6
ONE = "S250"
_WINDOW = 250

# In a process of its own, which says how much memory it took at most.
_FREEZE = """
import resource, sys, time
from backtester.cli import run
started = time.perf_counter()
code = run(["freeze", *sys.argv[1:]])
size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = 2**20 if sys.platform == "darwin" else 2**10
print("measured", code, time.perf_counter() - started, size / unit)
"""


def write_prices(path: Path, symbols: list[str]) -> None:
    """Write one CSV file with made-up daily prices of many symbols."""
    days = [day.isoformat() for day in calendar_by_code("XNYS").sessions(START, END)]
    generator = np.random.Generator(np.random.PCG64(7))
    with path.open("w", encoding="utf-8") as file:
        file.write("symbol,date,open,high,low,close,volume\n")
        for symbol in symbols:
            closes = 50 * np.exp(np.cumsum(generator.normal(0, 0.01, len(days))))
            for day, close in zip(days, closes.tolist(), strict=True):
                prices = f"{close:.2f},{close + 0.5:.2f},{close - 0.5:.2f},{close:.2f}"
                file.write(f"{symbol},{day},{prices},100000\n")


def _frozen(folder: Path, symbols: list[str]) -> tuple[float, float]:
    words = ["--name", "large", "--symbols", ",".join(symbols), "--start", START.isoformat()]
    words += ["--end", END.isoformat(), "--warmup", "0", "--vendor", "files", "--quiet"]
    words += ["--option", f"files.bars.path={folder / 'prices.csv'}"]
    words += ["--option", "files.bars.default.currency=USD", "--data-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-c", _FREEZE, *words], check=True, capture_output=True, text=True
    )
    _, code, seconds, megabytes = done.stdout.splitlines()[-1].split()
    if code != "0":
        raise RuntimeError(f"the freeze ended with {code}: {done.stderr}")
    return float(seconds), float(megabytes)


def _one_of(large: Snapshot) -> Snapshot:
    tables = {}
    for name in ("instruments", "bars"):
        rows = large.table(name)
        tables[name] = rows.filter(pc.is_in(rows.column("instrument"), value_set=pa.array([ONE])))
    return Snapshot.from_tables(tables, declared_start=large.start, declared_end=large.end)


def _view(snapshot: Snapshot) -> AsOfView:
    return AsOfView(
        snapshot,
        cutoff=calendar_by_code("XNYS").close_utc(END),
        session=END,
        decision_time="close",
        on_read=lambda record: None,
        cache=ViewCache(snapshot),
    )


def run() -> Outcome:
    """Freeze, open and read."""
    symbols = [f"S{number:03d}" for number in range(SYMBOLS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_prices(folder / "prices.csv", symbols)
        seconds, megabytes = _frozen(folder, symbols)
        large = open_snapshot("large", folder)
        small = _one_of(large)
        views = [_view(one) for one in (large, small)]
        timings = time_sides(
            {
                "open, verified": lambda: open_snapshot("large", folder),
                "open, unverified": lambda: open_snapshot("large", folder, verify=False),
                "1,000 slices of 500 symbols": lambda: _many(views[0]),
                "1,000 slices of one symbol": lambda: _many(views[1]),
            },
            repeats=3,
        )
    opened, _, sliced, alone = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(label="freeze", value=seconds, unit="s", bound=FREEZE_LIMIT_S),
            Finding(label="freeze, memory", value=megabytes, unit="MB", bound=MEMORY_LIMIT_MB),
            Finding(label="open", value=opened.median, unit="s", bound=OPEN_LIMIT_S),
            Finding(
                label="price slice", value=sliced.median / 1_000, unit="s", bound=SLICE_LIMIT_S
            ),
            Finding(label="slice of 500 symbols v. of one", value=sliced.median / alone.median),
        ),
    )


def _many(view: AsOfView) -> None:
    for _ in range(1_000):
        view.bars(ONE, last=_WINDOW)


FREEZING = Benchmark(
    name="freezing",
    question="Do 500 symbols x 10 years freeze, open and slice in the time promised?",
    run=run,
)
