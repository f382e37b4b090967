"""The leak audit for notebooks and programs: of a run, or of one's own pipeline on a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from backtester.api import Run
from backtester.errors import UsageError
from backtester.leak_audit import leakcheck as _of_run
from backtester.leak_pipeline import PipelineQuestion, check_pipeline
from backtester.leak_report import LeakReport, Steps
from backtester.runs import find_run
from backtester.snapshot import Snapshot, open_snapshot


def leakcheck(
    name: str | Run | None = None,
    *,
    pipeline: str | Callable[..., object] | None = None,
    snapshot: Snapshot | str | Path | None = None,
    tickers: Sequence[str] = (),
    dates: Sequence[date | str] | str = (),
    start: str | None = None,
    end: str | None = None,
    decision_time: Literal["close", "open"] = "close",
    reports_dir: Path | str = "reports",
    data_dir: Path | str = "data",
    workers: int = 1,
    progress: Steps | None = None,
) -> LeakReport:
    """Try to let the future in, and say whether any of it arrived.

    Args:
        name: A finished run, its id, or ``latest``; left out where a pipeline is given.
        pipeline: ``package.module:callable``, or a function of a module; see `leak_pipeline`.
        snapshot: What it is called on: a name, a folder, or opened from one.
        tickers: What it is asked about, on each of the dates.
        dates: Decision dates; or a grid, such as ``weekly``, with start and end.
        start: First date of a grid.
        end: Last date of a grid.
        decision_time: Whether its views are of the ``close`` or the ``open``.
        reports_dir: Folder of runs, where ``name`` is text.
        data_dir: Folder of snapshots and cache, likewise.
        workers: Processes at work.
        progress: Takes news.

    Returns:
        What was tried and found; ``clean`` says whether nothing was.
    """
    if pipeline is None:
        if name is None or snapshot is not None:
            raise UsageError("name a run, or a snapshot and a pipeline with tickers and dates")
        folder = name.folder if isinstance(name, Run) else find_run(Path(reports_dir), name)
        data = name.data_dir if isinstance(name, Run) else Path(data_dir)
        return _of_run(folder, data, workers=workers, progress=progress)
    if name is not None or snapshot is None or not tickers:
        raise UsageError("a pipeline needs a snapshot, tickers and dates, and no run")
    question = PipelineQuestion(
        pipeline=pipeline,
        snapshot=_opened(snapshot, Path(data_dir)),
        tickers=tuple(tickers),
        dates=dates if isinstance(dates, str) else ",".join(map(str, dates)),
        start=start,
        end=end,
        decision_time=decision_time,
        data_dir=Path(data_dir),
    )
    return check_pipeline(question, workers=workers, progress=progress)


def _opened(snapshot: Snapshot | str | Path, data_dir: Path) -> Snapshot:
    return snapshot if isinstance(snapshot, Snapshot) else open_snapshot(snapshot, data_dir)
