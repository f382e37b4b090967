"""What notebooks and programs use: `run`, `replay`, `load_run` and the wired graph."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from backtester import spellings
from backtester.backtest import RunResult
from backtester.backtest import run as _run
from backtester.config import RunConfig
from backtester.desk.attended import Unwatched
from backtester.desk.desk import Analysis, Desk
from backtester.desk.question import OF_THE_QUESTION, refuse_run_settings
from backtester.errors import UsageError
from backtester.freeze.question import freeze_question, names_vendors
from backtester.loading import load_config
from backtester.packs.replays import ReplayResult
from backtester.packs.replays import replay as _replay
from backtester.rescore import score as score
from backtester.runs.folder import DATABASE_NAME, RunFolder, RunManifest, find_run
from backtester.runs.journal import Ledger, read_ledger
from backtester.runs.named_memory import memory_in_force
from backtester.snapshots.snapshot import Snapshot, open_snapshot
from backtester.spellings import ALIASES, shown
from backtester.texts.artefacts import debate_of
from backtester.texts.report import save_reports
from backtester.texts.state_log import DEBATES, state_document
from backtester.texts.terminal import printable
from backtester.walk.progress import Progress
from tradingagents_core.protocols import Decision
from tradingagents_core.ratings import read_rating

if TYPE_CHECKING:
    import pandas as pd


def run(
    config: RunConfig,
    *,
    api_keys: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run a walk-forward backtest, go on with a stopped one, or find a finished one.

    Args:
        config: What to do. ``RunConfig(tickers=("AAPL",), start=..., end=...)`` is enough.
        api_keys: Key by provider, such as ``{"openai": ...}``; never stored. ``rulebook`` needs
            none.
        progress: Takes news while it goes on.

    Returns:
        The run, with its tables.

    Raises:
        UsageError: Exit code 2 of the command line; see `backtester.errors` for the others.
        DataError: Snapshot, cache or journal is missing or damaged.
        ProviderError: The model cannot be reached; call again later to go on.
    """
    result = _run(config, api_keys=api_keys, progress=progress)
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
        from backtester.store.query import fetch_arrow

        database = self.folder.path.parent / DATABASE_NAME
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
        from backtester.store.schema import relation_named

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


class DefaultConfig(Mapping[str, Any]):
    """Give the defaults of settings under TradingAgents' names; a copy stands alone.

    Nobody can change the defaults of a process: what is to differ is changed in a copy.
    """

    def __getitem__(self, name: str) -> Any:
        """Return the default of one setting."""
        if name not in SEED_KEYS:
            raise KeyError(name)
        field = ALIASES[name].key if name in ALIASES else name
        default = RunConfig.model_fields[field].get_default(call_default_factory=True)
        return str(default) if isinstance(default, Path) else deepcopy(default)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(SEED_KEYS)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(SEED_KEYS)

    def copy(self) -> dict[str, Any]:
        """Return a dictionary to be changed and given to `TradingAgentsGraph`."""
        return dict(self)


SEED_KEYS: Final = (
    *("llm_provider", "deep_think_llm", "quick_think_llm", "backend_url", "temperature"),
    *("openai_reasoning_effort", "google_thinking_level", "anthropic_effort"),
    *("max_debate_rounds", "max_risk_discuss_rounds", "max_recur_limit", "output_language"),
    *("news_article_limit", "global_news_article_limit", "global_news_lookback_days"),
    *("data_vendors", "tool_vendors", "benchmark_ticker", "benchmark_map"),
    *("checkpoint_enabled", "memory_log_max_entries", "results_dir"),
)
DEFAULT_CONFIG: Final = DefaultConfig()


class TradingAgentsGraph:
    """The wired pipeline: decide one ticker on one date, on a frozen snapshot.

    Args:
        selected_analysts: Analysts in order; default all four.
        debug: Write what each node says to standard error as it ends.
        config: Settings by the names of `RunConfig` or of TradingAgents, such as a changed copy of
            `DEFAULT_CONFIG`. Arguments win over it. What it could say about ticker, dates, grid
            and trials is refused: that is what `propagate` is asked.
        callbacks: LangChain callback handlers that hear every model call, of lessons too.
        snapshot: A `Snapshot`, or the name or folder of one; default what the settings say.
        memory: Name of the memory that decisions are kept in and lessons come from, or ``off``;
            default ``default``, or off where the settings switch memory off.
        api_keys: Key by provider; ``rulebook`` needs none.
        data_dir: Folder of snapshots and cache; default what the settings say.
        reports_dir: Folder of analyses and memories, ``results_dir`` of TradingAgents; likewise.
        vendor_keys: Variable -> value, such as ``os.environ``: keys of vendors, and who asks.

    Attributes:
        config: The settings in force, by the names of `RunConfig`.
        snapshot: What it decides on. Where settings name vendors (``data_vendors``) and no
            snapshot, it is frozen from them when a question is asked, and None before.
        ticker: What was asked about last, as it was asked, or None before.
        curr_state: Final state of the last decision, or None before the first.
        log_states_dict: Session, as text -> what was logged of the state decided for it.
        analysis: The last decision with all records, or None before the first.

    Raises:
        UsageError: An argument or setting does not fit.
        DataError: There is no such snapshot, or it is damaged.

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
        snapshot: Snapshot | str | Path | None = None,
        memory: str | None = None,
        api_keys: Mapping[str, str] | None = None,
        data_dir: Path | str | None = None,
        reports_dir: Path | str | None = None,
        vendor_keys: Mapping[str, str] | None = None,
    ) -> None:
        given = snapshot.name if isinstance(snapshot, Snapshot) else snapshot
        settings = _settings(
            config,
            analysts=_listed("selected_analysts", selected_analysts, "['market', 'news']"),
            snapshot=None if given is None else str(given),
            data_dir=data_dir,
            reports_dir=reports_dir,
        )
        self.config: Mapping[str, Any] = MappingProxyType(
            {
                name: value
                for name, value in settings
                if name in settings.model_fields_set - OF_THE_QUESTION
            }
        )
        self._debug = debug
        self._settings = settings
        self._vendor_keys = dict(vendor_keys or {})
        self._sit_down = partial(
            Desk,
            memory=memory_in_force(memory, settings.memory),
            data_dir=settings.data_dir,
            reports_dir=settings.reports_dir,
            api_keys=api_keys,
            callbacks=_listed("callbacks", callbacks, "[handler]") or (),
        )
        self.snapshot: Snapshot | None = None
        self._desk: Desk | None = None
        if isinstance(snapshot, Snapshot):
            self._decide_on(snapshot)
        elif not names_vendors(settings):
            self._decide_on(open_snapshot(settings.snapshot, settings.data_dir))
        self.ticker: str | None = None
        self.curr_state: Mapping[str, Any] | None = None
        self.log_states_dict: dict[str, Mapping[str, Any]] = {}
        self.analysis: Analysis | None = None

    def propagate(
        self, company_name: str, trade_date: date | str, asset_type: str | None = None
    ) -> tuple[Mapping[str, Any], Decision]:
        """Settle what the memory knows by the date, then decide.

        Where settings name vendors and no snapshot, what they have is frozen first; the same
        question stands on the same snapshot, and asks no vendor again.

        Args:
            company_name: Symbol or instrument id.
            trade_date: Session, or a date that moves to the session before: a date, a datetime
                of which the date counts (an hour with a zone must not lie before what the decision
                knows), or text such as ``2018-06-29``.
            asset_type: What TradingAgents is told, ``stock`` or ``crypto``. Here the snapshot knows
                it; what says otherwise is refused.

        Returns:
            The final state, field -> text (a debate is a mapping of its own), and the decision:
            its rating, None where none was read, and the typed decision as JSON.

        Raises:
            UsageError: Ticker or date do not read, or a setting does not fit.
            DataError: The snapshot does not hold the ticker or the date.
            ProviderError: The model, or a vendor, cannot be reached; see `Desk.decide` for the
                others.
        """
        day = _date(trade_date)
        desk = self._desk_for(company_name, day)
        if _is_instant(trade_date):
            desk.require_past(self.config, company_name, day, instant=trade_date)
        if asset_type is not None:
            kind = desk.kind_of(self.config, company_name, day)
            if asset_type not in ("stock", "crypto") or (asset_type == "crypto") != (
                kind == "crypto"
            ):
                raise UsageError(
                    f"asset_type {shown(asset_type)}: in snapshot {desk.snapshot.name} "
                    f"{company_name} is of the kind {kind!r}: leave asset_type out"
                )
        self.ticker = company_name
        watcher = _Debug() if self._debug else None
        analysis = desk.decide(self.config, company_name, day, watcher=watcher)
        self.analysis = analysis
        self.curr_state = _readable(analysis.decision)
        session = analysis.record.key.session.isoformat()
        self.log_states_dict[session] = state_document(analysis.decision.state)
        return self.curr_state, analysis.decision

    def _decide_on(self, snapshot: Snapshot) -> Desk:
        self.snapshot = snapshot
        self._desk = self._sit_down(snapshot)
        return self._desk

    def _desk_for(self, company_name: str, day: date) -> Desk:
        if names_vendors(self._settings):
            frozen = freeze_question(
                self._settings,
                company_name,
                day,
                keys=self._vendor_keys,
                say=_told if self._debug else None,
            )
            return self._decide_on(frozen)
        if self._desk is None:
            raise UsageError("there is no snapshot to decide on: name one")
        return self._desk

    def save_reports(self, final_state: Mapping[str, Any], ticker: str) -> Path:
        """Write the report tree of a final state and return its complete report.

        It lies under ``<reports_dir>/<ticker>/<date>``.

        Raises:
            UsageError: That is no final state, or the folder cannot be written.
        """
        if not isinstance(final_state, Mapping):
            raise UsageError(
                f"{shown(final_state)} is no final state: give what propagate returns first"
            )
        return save_reports(final_state, ticker, self._settings.reports_dir)

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
        if self.analysis is None or self._desk is None:
            raise UsageError("nothing was decided yet: call propagate first")
        return self._desk.reflect(self.config, self.analysis.record, earned=earned).lesson

    def process_signal(self, full_signal: str) -> str | None:
        """Return the rating that a text declares, None where it declares none or several.

        Raises:
            UsageError: It is no text.
        """
        if not isinstance(full_signal, str):
            raise UsageError(
                f"{shown(full_signal)} is no text: give one such as "
                "final_state['final_trade_decision']"
            )
        return read_rating(full_signal).rating


class _Debug(Unwatched):
    """Write what each node says to standard error, node by node."""

    def node_finished(self, cell: str, node: str, update: Mapping[str, Any]) -> None:
        """Write a node's name and the texts that it changed."""
        said = "".join(f"{name}: {value}\n" for name, value in update.items())
        sys.stderr.write(f"--- {node} ({cell})\n{said}")


def _told(line: str) -> None:
    sys.stderr.write(f"{printable(line, keep='')}\n")


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
    try:
        return value.date() if isinstance(value, datetime) else cast("date", spellings.day(value))
    except ValueError as error:
        raise UsageError(f"trade_date: {error}") from error


def _is_instant(value: object) -> TypeGuard[datetime]:
    """Say whether a value is an hour in a zone; a midnight is another way to write a date."""
    return isinstance(value, datetime) and value.tzinfo is not None and value.time() != time.min


def _listed(name: str, given: Iterable[Any] | None, such_as: str) -> tuple[Any, ...] | None:
    """Return a list of the caller's as a tuple; a word is none, though it holds letters."""
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"{name} {shown(given)} is no list: write one such as {such_as}")
    return tuple(given)


def _settings(config: Mapping[str, Any] | None, **arguments: Any) -> RunConfig:
    """Return the settings of any question: defaults, then the configuration, then arguments."""
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(
            f"config {shown(config)} is no mapping of settings: write one such as "
            '{"max_debate_rounds": 2}'
        )
    refuse_run_settings(map(str, config or {}), "config")
    some_day = date(2018, 1, 2)
    question = {"tickers": ("AAPL",), "start": some_day, "end": some_day, "grid": "daily"}
    return load_config(settings=config, flags={**arguments, **question})
