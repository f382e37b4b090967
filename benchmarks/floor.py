"""What a replayed cell costs beside LangGraph itself with nodes that do nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Benchmark, Finding, Outcome, time_sides

if TYPE_CHECKING:
    from backtester.records import CellRecord
    from backtester.walk.cell import CellTask, Workbench

SESSION = date(2018, 6, 29)
TICKERS = ("AAPL", "AMZN", "NVDA", "NFLX")
LIMIT = 4.0
ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Hold the same cells ready to be recorded and to be replayed."""

    recording: Workbench
    replaying: Workbench
    tasks: tuple[CellTask, ...]


def run() -> Outcome:
    """Record a few cells with the rulebook model, then time their replay beside the floor.

    The floor runs as many empty nodes as each cell took, over the same state class.
    """
    from backtester.walk.cell import decide_cell
    from tradingagents_core.graph import floor_graph

    with tempfile.TemporaryDirectory() as folder:
        setting = set_up(Path(folder))
        recorded = [decide_cell(setting.recording, task) for task in setting.tasks]
        floors = [floor_graph(cell.steps) for cell in recorded]
        replayed: list[CellRecord] = []

        def run_floors() -> None:
            for _ in range(ROUNDS):
                for floor in floors:
                    floor()

        def replay_cells() -> None:
            for _ in range(ROUNDS):
                replayed[:] = [decide_cell(setting.replaying, task) for task in setting.tasks]

        timings = time_sides(
            {"LangGraph, empty nodes": run_floors, "replayed cell": replay_cells},
            repeats=9,
            units=ROUNDS * len(TICKERS),
        )
    _require_same(recorded, replayed)
    floor, cell = timings
    return Outcome(
        timings=timings,
        findings=(
            Finding(
                label="graph steps a cell", value=_mean([c.steps for c in recorded]), unit="steps"
            ),
            Finding(
                label="model calls a cell",
                value=_mean([len(c.calls) for c in recorded]),
                unit="calls",
            ),
            # The fastest repeats: what the work costs, without what the machine's neighbours add.
            Finding(label="replayed cell v. floor", value=cell.low / floor.low, bound=LIMIT),
        ),
    )


def set_up(folder: Path) -> Setting:
    """Return a bench that records and one that replays, and four cells to decide."""
    from backtester.calendar import calendar_of
    from backtester.config import RunConfig
    from backtester.records import CellKey
    from backtester.snapshots.snapshot import open_snapshot
    from backtester.walk.cell import BenchSpec, CellTask, Workbench

    config = RunConfig(
        tickers=TICKERS, start=SESSION, end=SESSION, benchmark="^GSPC", data_dir=folder
    )
    snapshot = open_snapshot(config.snapshot, folder)
    recording, replaying = (
        Workbench.build(
            BenchSpec(
                config=config.model_copy(update={"mode": mode}),
                snapshot_path=snapshot.path,
                cache_dir=folder / "cache",
            ),
            snapshot=snapshot,
        )
        for mode in ("record", "replay")
    )
    tasks = tuple(
        CellTask(
            key=CellKey(session=SESSION, ticker=ticker),
            cutoff=calendar_of(ticker).close_utc(SESSION),
            own_lessons=(),
            other_lessons=(),
            lessons_hash="",
            lessons_shown=(),
            scored=True,
        )
        for ticker in TICKERS
    )
    return Setting(recording=recording, replaying=replaying, tasks=tasks)


def _require_same(recorded: Sequence[CellRecord], replayed: Sequence[CellRecord]) -> None:
    """Refuse figures of cells that failed, called a model or came out otherwise."""
    for before, after in zip(recorded, replayed, strict=True):
        if after.status != "done" or after.state_hashes != before.state_hashes:
            raise RuntimeError(f"{after.key} did not replay: {after.status}, {after.error}")
        if not all(call.hit for call in after.calls):
            raise RuntimeError(f"{after.key} called a model in replay")


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


FLOOR = Benchmark(
    name="floor",
    question="Is a replayed cell at most four times LangGraph with empty nodes?",
    run=run,
)
