"""What notebooks and programs use: `run`, `replay`, `load_run` and the wired graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtester.artefacts import debate_of
from backtester.attended import Unwatched
from backtester.backtest import RunResult
from backtester.backtest import run as _run
from backtester.config import RunConfig
from backtester.desk import DEFAULT_MEMORY, Analysis, Desk
from backtester.errors import UsageError
from backtester.journal import Ledger, read_ledger
from backtester.progress import Progress
from backtester.replays import ReplayResult
from backtester.replays import replay as _replay
from backtester.reporting import save_reports
from backtester.runs import RunFolder, RunManifest, find_run
from backtester.snapshot import Snapshot, open_snapshot
from backtester.state_log import DEBATES
from tradingagents_core.protocols import Decision
from tradingagents_core.ratings import read_rating

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
    """Load a run by its id, a part of it, or ``latest``.

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


@dataclass(frozen=True, kw_only=True, repr=False)
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
            query: The database holds the rows of all runs; ``$run_id`` stands for this one, as in
                ``SELECT * FROM returns WHERE run_id = $run_id``. `table` filters by itself.

        Raises:
            UsageError: The query is no single SELECT, or wrong.
            DataError: There is no database yet.
        """
        from backtester.sql import fetch_arrow

        database = self.folder.path.parent / "results.duckdb"
        table = fetch_arrow(database, query, values={"run_id": self.run_id})
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def table(self, name: str) -> pd.DataFrame:
        """Return this run's rows of a table or view, in the order of its key.

        Args:
            name: ``cells``, ``returns``, ``alpha_by_rating``, ...; `backtester schema` lists them.

        Raises:
            UsageError: There is no such table or view.
            DataError: There is no database yet.
        """
        from backtester.store_schema import relation_named

        relation = relation_named(name)
        return self.sql(
            f'SELECT * FROM "{relation.name}" WHERE run_id = $run_id '
            f"ORDER BY {', '.join(relation.key)}"
        )

    def __repr__(self) -> str:
        """Return one line, for notebooks."""
        return f"Run({self.run_id!r}, {self.manifest.status}, {len(self.ledger.cells)} cells)"


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
        debug: Write what each node says to standard error as it ends.
        config: Other settings by the names of `RunConfig`.
        callbacks: LangChain callback handlers that hear every model call.
        snapshot: A `Snapshot`, or the name or folder of one.
        memory: Name of the memory that decisions are kept in and lessons come from, or ``off``.
        api_key: Key of the model provider; ``rulebook`` needs none.
        data_dir: Folder of snapshots and cache.
        reports_dir: Folder of analyses and memories.

    Attributes:
        snapshot: What it decides on.
        curr_state: Final state of the last decision, or None before the first.
        analysis: The last decision with all records, or None before the first.

    Example:
        >>> graph = TradingAgentsGraph(snapshot="us-2013-2018")
        >>> state, decision = graph.propagate("NVDA", "2018-06-29")
        >>> decision.rating
    """

    def __init__(
        self,
        selected_analysts: Sequence[str] | None = None,
        debug: bool = False,
        config: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] | None = None,
        *,
        snapshot: Snapshot | str | Path = "us-2013-2018",
        memory: str = DEFAULT_MEMORY,
        api_key: str | None = None,
        data_dir: Path | str = "data",
        reports_dir: Path | str = "reports",
    ) -> None:
        self._settings = dict(config or {})
        if selected_analysts is not None:
            self._settings["analysts"] = tuple(selected_analysts)
        self._debug = debug
        self.snapshot = (
            snapshot if isinstance(snapshot, Snapshot) else open_snapshot(snapshot, Path(data_dir))
        )
        self._desk = Desk(
            self.snapshot,
            memory=memory,
            data_dir=Path(data_dir),
            reports_dir=Path(reports_dir),
            api_key=api_key,
            callbacks=tuple(callbacks or ()),
        )
        self.curr_state: Mapping[str, Any] | None = None
        self.analysis: Analysis | None = None

    def propagate(self, ticker: str, trade_date: date | str) -> tuple[Mapping[str, Any], Decision]:
        """Settle what the memory knows by the date, then decide.

        Args:
            ticker: Symbol or instrument id.
            trade_date: Session, or a date that moves to the session before.

        Returns:
            The final state, field -> text (a debate is a mapping of its own), and the decision:
            its rating, None where none was read, and the typed decision as JSON.

        Raises:
            UsageError: The date does not read, or a setting does not fit.
            DataError: The snapshot does not hold the ticker or the date.
            ProviderError: The model cannot be reached; see `Desk.decide` for the others.
        """
        watcher = _Debug() if self._debug else None
        analysis = self._desk.decide(self._settings, ticker, _date(trade_date), watcher=watcher)
        self.analysis = analysis
        self.curr_state = _readable(analysis.decision)
        return self.curr_state, analysis.decision

    def save_reports(self, final_state: Mapping[str, Any], ticker: str) -> Path:
        """Write the report tree of a final state and return its complete report.

        It lies under ``<reports_dir>/<ticker>/<date>``.

        Raises:
            UsageError: The folder cannot be written.
        """
        return save_reports(final_state, ticker, self._desk.reports_dir)

    def reflect_and_remember(self, returns_losses: float | str) -> str:
        """Reflect on the last decision with its result, and keep the lesson in the memory.

        The pipeline does not run again. The lesson is shown to decisions from the instant on at
        which the simulated clock knows such a result, and to none before.

        Args:
            returns_losses: What it earned: a fraction (0.032), or a text such as ``+3.2%``.

        Returns:
            The lesson.

        Raises:
            UsageError: Nothing was decided yet, it has no rating, the memory is off, or the
                return does not read.
            ProviderError: The model gave no answer.
        """
        earned = _fraction(returns_losses)
        if self.analysis is None:
            raise UsageError("nothing was decided yet: call propagate first")
        return self._desk.reflect(self._settings, self.analysis.record, earned=earned).lesson

    def process_signal(self, full_signal: str) -> str | None:
        """Return the rating that a text declares, None where it declares none or several."""
        return read_rating(full_signal).rating


class _Debug(Unwatched):
    """Write what each node says to standard error, node by node."""

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Write a node's name and the texts that it changed."""
        said = "".join(f"{name}: {value}\n" for name, value in update.items())
        sys.stderr.write(f"--- {node} ({cell})\n{said}")


def _readable(decision: Decision) -> Mapping[str, Any]:
    """Return the final state with debates as mappings, as programs read them."""
    debates = {name: dict(debate_of(decision.state, name)) for name in DEBATES}
    return {**decision.state, **debates}


def _fraction(earned: float | str) -> float:
    text = str(earned).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise UsageError(
            f"{earned!r} is no return: write a fraction such as 0.032, or '+3.2%'"
        ) from error
    if not math.isfinite(value) or value < -1:
        raise UsageError(f"{earned!r} is no return: nothing can lose more than all of it")
    return value


def _date(value: date | str) -> date:
    if isinstance(value, datetime):
        return value.date()
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)
    except ValueError as error:
        raise UsageError(f"{value!r} is no date: write YYYY-MM-DD") from error
