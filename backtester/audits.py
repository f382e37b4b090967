"""The leak audit for notebooks and programs: of a run, or of one's own pipeline on a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from backtester.api import Run
from backtester.errors import UsageError
from backtester.leaks.audit import leakcheck as _of_run
from backtester.leaks.pipeline import PipelineQuestion, check_pipeline
from backtester.leaks.report import LeakReport, Steps
from backtester.runs.folder import RunFolder, find_run
from backtester.snapshots.snapshot import Snapshot, open_snapshot


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
        pipeline: ``package.module:callable``, or a function of a module; see `leaks.pipeline`.
        snapshot: What it is called on: a name, a folder, or opened from one.
        tickers: What it is asked about, on each of the dates.
        dates: Decision dates; or a grid, such as ``weekly``, with start and end.
        start: First date of a grid; ``end`` its last.
        end: See ``start``.
        decision_time: ``close`` or ``open``.
        reports_dir: Folder of runs, where ``name`` is text; so ``data_dir``, of snapshots.
        data_dir: See ``reports_dir``.
        workers: Processes at work, which tell ``progress``.
        progress: See ``workers``.

    Returns:
        What was tried and found; ``clean`` says whether nothing was.
    """
    if pipeline is None:
        folder, data = _places(name, snapshot, Path(reports_dir), Path(data_dir))
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


def _places(
    name: Run | str | None, snapshot: object, reports_dir: Path, data_dir: Path
) -> tuple[RunFolder, Path]:
    """Return the run and the folder of its data."""
    if name is None or snapshot is not None:
        raise UsageError("name a run, or a snapshot and a pipeline with tickers and dates")
    if isinstance(name, Run):
        return name.folder, name.data_dir
    return find_run(reports_dir, name), data_dir


def _opened(snapshot: Snapshot | str | Path, data_dir: Path) -> Snapshot:
    return snapshot if isinstance(snapshot, Snapshot) else open_snapshot(snapshot, data_dir)
