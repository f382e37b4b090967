"""What notebooks and programs use: `run`, `replay`, `load_run` and the wired graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtester.backtest import RunResult
from backtester.backtest import run as _run
from backtester.cell import BenchSpec, CellTask, Workbench, decide_cell
from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.journal import Ledger, read_ledger
from backtester.plan import cache_folder, cutoff_of, resolve_ticker
from backtester.pricing import market_of
from backtester.progress import Progress
from backtester.records import CellKey, CellRecord
from backtester.replays import ReplayResult
from backtester.replays import replay as _replay
from backtester.runs import RunFolder, RunManifest, find_run
from backtester.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    import pandas as pd


def run(config: RunConfig, *, api_key: str | None = None, progress: Progress | None = None) -> Run:
    """Run a walk-forward backtest, go on with a stopped one, or find a finished one.

    Args:
        config: What to do. ``RunConfig(tickers=("AAPL",), start=..., end=...)`` is enough.
        api_key: Key of the model provider; never stored. ``rulebook`` needs none.
        progress: Takes news while it goes on.

    Returns:
        The run, with its tables.

    Raises:
        UsageError: Exit code 2 of the command line; see `backtester.errors` for the others.
        DataError: Snapshot, cache or journal is missing or damaged.
        ProviderError: The model cannot be reached; call again later to go on.
    """
    result = _run(config, api_key=api_key, progress=progress)
    return _loaded(RunFolder(result.folder), config.data_dir, result)


def load_run(
    name: str, *, reports_dir: Path | str = "reports", data_dir: Path | str = "data"
) -> Run:
    """Load a run by its id, the beginning or end of it, or ``latest``.

    Raises:
        DataError: There is none, or its files are damaged.
    """
    return _loaded(find_run(Path(reports_dir), name), Path(data_dir), None)


def replay(
    name: str | Run,
    *,
    reports_dir: Path | str = "reports",
    data_dir: Path | str = "data",
    workers: int = 1,
    keep: Path | str | None = None,
) -> ReplayResult:
    """Replay a finished run without the network and compare its results root.

    Args:
        name: A run, its id, or ``latest``.
        reports_dir: Folder of runs, where ``name`` is text.
        data_dir: Folder of snapshots and cache, likewise.
        workers: loky processes.
        keep: Folder for the replay's own files; default a temporary one.

    Raises:
        DataError: The run is not finished, or snapshot or prompts are not those of the run.
    """
    if isinstance(name, Run):
        folder, data = name.folder, name.data_dir
    else:
        folder, data = find_run(Path(reports_dir), name), Path(data_dir)
    return _replay(folder, data, workers=workers, keep=Path(keep) if keep is not None else None)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Give a run's records and tables.

    Attributes:
        manifest: What it was and how it ended.
        folder: Its folder.
        data_dir: Where its snapshot and cache are.
        ledger: Its journal, read: cells, returns and memory by cell.
        result: What this call did, or None for a run that was only loaded.
    """

    manifest: RunManifest
    folder: RunFolder
    data_dir: Path
    ledger: Ledger
    result: RunResult | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.manifest.run_id

    @property
    def root(self) -> str | None:
        """The results root, or None while it is not finished."""
        return self.manifest.results_root

    def sql(self, query: str) -> pd.DataFrame:
        """Run one SELECT on the results database and return a frame.

        Args:
            query: For example ``SELECT * FROM alpha_by_rating``; rows of all runs are there, so
                filter by ``run_id``.

        Raises:
            UsageError: The query is no single SELECT, or wrong.
            DataError: There is no database yet.
        """
        from backtester.sql import fetch_arrow

        table = fetch_arrow(self.folder.path.parent / "results.duckdb", query)
        frame: pd.DataFrame = table.to_pandas()
        return frame


def _loaded(folder: RunFolder, data_dir: Path, result: RunResult | None) -> Run:
    return Run(
        manifest=folder.read_manifest(),
        folder=folder,
        data_dir=data_dir,
        ledger=read_ledger(folder.journal_path),
        result=result,
    )


class TradingAgentsGraph:
    """The wired pipeline: decide one ticker on one date, on a frozen snapshot.

    Args:
        selected_analysts: Analysts in order; default all four.
        snapshot: A `Snapshot`, or the name or folder of one.
        config: Other settings by the names of `RunConfig`.
        api_key: Key of the model provider; ``rulebook`` needs none.
        data_dir: Folder of snapshots and cache.

    Example:
        >>> graph = TradingAgentsGraph(snapshot="us-2013-2018")
        >>> cell, rating = graph.propagate("NVDA", "2018-06-29")
    """

    def __init__(
        self,
        selected_analysts: tuple[str, ...] | list[str] | None = None,
        *,
        snapshot: Snapshot | str | Path = "us-2013-2018",
        config: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        data_dir: Path | str = "data",
    ) -> None:
        settings = dict(config or {})
        if selected_analysts is not None:
            settings["analysts"] = tuple(selected_analysts)
        self._settings = {**settings, "data_dir": Path(data_dir)}
        self._api_key = api_key
        self.snapshot = (
            snapshot if isinstance(snapshot, Snapshot) else open_snapshot(snapshot, Path(data_dir))
        )
        self._bench: Workbench | None = None

    def propagate(self, ticker: str, trade_date: date | str) -> tuple[CellRecord, str | None]:
        """Decide one cell with an empty memory.

        Args:
            ticker: Symbol or instrument id.
            trade_date: Session, or a date that moves to the session before.

        Returns:
            The cell's record (decision, calls, reads) and its rating, None where none was read.

        Raises:
            UsageError: The date does not read.
            DataError: The snapshot does not hold the ticker or the date.
        """
        day = _date(trade_date)
        config = RunConfig(**{"tickers": (ticker,), "start": day, "end": day, **self._settings})
        if not self.snapshot.start <= day <= self.snapshot.end:
            raise DataError(
                f"{day} is outside snapshot {self.snapshot.name}, which covers "
                f"{self.snapshot.start} to {self.snapshot.end}: choose a date within it"
            )
        instrument = resolve_ticker(self.snapshot, ticker, config)
        calendar = market_of(self.snapshot, instrument).calendar
        session = calendar.last_on_or_before(day)
        record = decide_cell(
            self._workbench(config),
            CellTask(
                key=CellKey(session=session, ticker=instrument),
                cutoff=cutoff_of(calendar, session, config),
                own_lessons=(),
                other_lessons=(),
                lessons_hash="",
                lessons_shown=(),
                scored=True,
            ),
        )
        return replace(record), record.rating

    def _workbench(self, config: RunConfig) -> Workbench:
        if self._bench is None:
            spec = BenchSpec(
                config=config,
                snapshot_path=self.snapshot.path,
                cache_dir=cache_folder(config.data_dir),
            )
            self._bench = Workbench.build(spec, api_key=self._api_key, snapshot=self.snapshot)
        return self._bench


def _date(value: date | str) -> date:
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except ValueError as error:
        raise UsageError(f"{value!r} is no date: write YYYY-MM-DD") from error
