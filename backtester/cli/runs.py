"""Commands that run and replay: ``demo``, ``plan``, ``run``, ``replay``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import data_folder, environment, refuse_keys, reports_folder
from backtester.errors import CacheMiss, UsageError, VerificationFailed
from backtester.spellings import MOST_WORKERS, value_of_text
from backtester.terminal import printable

if TYPE_CHECKING:
    from backtester.backtest import RunResult
    from backtester.config import RunConfig
    from backtester.replays import ReplayResult

DEMO: dict[str, Any] = {
    "name": "demo",
    "tickers": ("AAPL", "AMZN", "GOOG", "META", "NFLX", "NVDA"),
    "start": date(2018, 1, 1),
    "end": date(2018, 12, 31),
    "grid": "weekly",
    "horizon": 5,
    "benchmark": "^GSPC",
    "snapshot": "us-2013-2018",
}

ReportsDir = Annotated[
    Path | None, typer.Option("--reports-dir", help="Folder of runs and results database.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of snapshots and cache.")]


def whole(flag: str, *, most: int | None = None) -> Callable[[object], int]:
    """Return a reader of whole numbers that says in plain words what does not fit.

    Args:
        flag: Name of the option, for the message.
        most: Largest number that may be given, where that is not left to the settings.
    """

    def read(given: object) -> int:
        try:
            value: int = value_of_text(int, str(given))
        except ValueError as error:
            raise UsageError(f"{flag}: {error}") from error
        if most is not None and not 1 <= value <= most:
            raise UsageError(f"{flag}: {value} is too many or too few: write 1 to {most}")
        return value

    return read


Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        parser=whole("--workers", most=MOST_WORKERS),
        metavar="INTEGER",
        help="Cells decided at once.",
    ),
]
RunName = Annotated[str, typer.Argument(help="Run id, a part of it, or 'latest'.")]

# Settings into which a key may slip; all of them are written into the manifest.
_WRITTEN = ("base_url", "endpoint_alias", "quick_model", "deep_model", "name")

Text = str | None
Number = int | None
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file with settings.")]
FromManifest = Annotated[
    Path | None, typer.Option("--from", help="Repeat the run of this manifest.json.")
]
Tickers = Annotated[Text, typer.Option(help="Instruments, separated by commas.")]
Start = Annotated[Text, typer.Option(help="First date, YYYY-MM-DD.")]
End = Annotated[Text, typer.Option(help="Last date, YYYY-MM-DD.")]
Grid = Annotated[
    Text, typer.Option(help="daily, weekly, monthly, 'every N', or dates with commas.")
]
SnapshotName = Annotated[Text, typer.Option(help="Name or folder of the snapshot.")]
Horizon = Annotated[
    Number,
    typer.Option(
        parser=whole("--horizon"),
        metavar="INTEGER",
        help="Sessions from the decision to the exit.",
    ),
]
Entry = Annotated[Text, typer.Option(help="next_open, next_close, close or open.")]
Benchmark = Annotated[Text, typer.Option(help="Explicit benchmark; default by market.")]
Memory = Annotated[Text, typer.Option(help="portfolio, ticker or off.")]
Analysts = Annotated[Text, typer.Option(help="Analysts in order, separated by commas.")]
Trials = Annotated[
    Number,
    typer.Option(parser=whole("--trials"), metavar="INTEGER", help="Repeats of each cell."),
]
Warmup = Annotated[
    Number,
    typer.Option(
        parser=whole("--warmup"), metavar="INTEGER", help="First sessions that are not scored."
    ),
]
ProviderName = Annotated[Text, typer.Option(help="rulebook, openai or openai_compatible.")]
Model = Annotated[Text, typer.Option(help="Model of both tiers.")]
BaseUrl = Annotated[Text, typer.Option(help="Endpoint of the provider.")]
OnFailure = Annotated[Text, typer.Option(help="continue or stop.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as KEY=VALUE; may be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("demo")(demo)
    app.command("plan")(plan)
    app.command("run")(run)
    app.command("replay")(replay)
    app.command("settings")(settings_list)


def demo(workers: Workers = None, data_dir: DataDir = None, reports_dir: ReportsDir = None) -> None:
    """Run the main job on the snapshot that comes with the package, offline and without a key."""
    from backtester.config import load_config

    places = {"data_dir": data_folder(data_dir), "reports_dir": reports_folder(reports_dir)}
    _run_and_show(load_config(flags={**DEMO, **places, "workers": workers}), note=_DEMO_NOTE)


_DEMO_NOTE = (
    "The model is 'rulebook', published textbook rules and no language model: "
    "these figures show the machinery at work and are evidence of nothing else."
)


def run(
    context: typer.Context,
    config_file: ConfigFile = None,
    manifest: FromManifest = None,
    tickers: Tickers = None,
    start: Start = None,
    end: End = None,
    grid: Grid = None,
    snapshot: SnapshotName = None,
    horizon: Horizon = None,
    entry: Entry = None,
    benchmark: Benchmark = None,
    memory: Memory = None,
    analysts: Analysts = None,
    trials: Trials = None,
    warmup: Warmup = None,
    provider: ProviderName = None,
    model: Model = None,
    base_url: BaseUrl = None,
    on_failure: OnFailure = None,
    settings: Settings = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Run a walk-forward backtest; the same command goes on with it, or finds it finished."""
    _run_and_show(_asked_for(context))


def _asked_for(context: typer.Context) -> RunConfig:
    flags = dict(context.params)
    config_file, manifest, settings, model = (
        flags.pop(word) for word in ("config_file", "manifest", "settings", "model")
    )
    flags |= {"quick_model": model, "deep_model": model}
    flags |= {word: words_of(flags[word]) for word in ("tickers", "analysts")}
    return _configure(config_file, manifest, flags, settings or [])


@wraps(run, assigned=())
def plan(context: typer.Context, **_: Any) -> None:
    """Count the cells and cutoffs of a run; nothing is decided and nothing is spent."""
    from backtester.cell import build_pipeline
    from backtester.plan import lay_out
    from backtester.snapshot import open_snapshot

    config = _asked_for(context)
    snapshot = open_snapshot(config.snapshot, config.data_dir)
    # Replaying models need no key, and nothing can be spent on them.
    counted = config.model_copy(update={"mode": "replay"})
    laid = lay_out(config, snapshot, fingerprint=build_pipeline(counted).fingerprint())
    first, last = laid.barriers[0].cutoff, laid.barriers[-1].cutoff
    typer.echo(f"run      {laid.run_id}")
    typer.echo(f"cells    {laid.cells}, of which {len(laid.warmup)} warm-up")
    typer.echo(f"cutoffs  {len(laid.barriers)}, {first:%Y-%m-%d %H:%M}Z to {last:%Y-%m-%d %H:%M}Z")


def replay(
    name: RunName,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the replay's files in this folder.")
    ] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Replay a finished run without the network and compare its results root."""
    from backtester.cli.render import RichProgress
    from backtester.replays import replay as replay_run
    from backtester.runs import find_run

    folder = find_run(reports_folder(reports_dir), name)
    with RichProgress("replay") as progress:
        result = replay_run(
            folder,
            data_folder(data_dir),
            workers=1 if workers is None else workers,
            keep=keep,
            progress=progress,
        )
    _tell_replay(result)


def settings_list() -> None:
    """List every setting of a run with its default; a TOML file and --set take these names."""
    from backtester.cli.render import show_settings
    from backtester.config import RunConfig, is_identity

    fields = RunConfig.model_fields.items()
    show_settings(
        (
            name,
            "required" if field.is_required() else _plain(field.default),
            "yes" if is_identity(name) else "no",
            field.description or "",
        )
        for name, field in fields
    )


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _tell_replay(result: ReplayResult) -> None:
    typer.echo(f"run            {result.run_id}")
    typer.echo(f"cells          {result.cells}")
    typer.echo(f"replies        {result.hits} from the record, {len(result.misses)} missing")
    typer.echo("network        blocked")
    typer.echo(f"recorded root  {result.recorded_root}")
    typer.echo(f"replayed root  {result.root}")
    if result.misses:
        for miss in result.misses[:3]:
            typer.echo(f"miss: {miss}", err=True)
        if result.diff:
            typer.echo(printable(result.diff), err=True)
        raise CacheMiss(
            f"{len(result.misses)} calls have no recording; record them with 'run', "
            "or bring the cache back"
        )
    if not result.equal:
        raise VerificationFailed(
            f"the replay of {result.run_id} differs in: {', '.join(result.differs)}"
        )
    typer.echo("equal: the same inputs gave the same bytes")


def _run_and_show(config: RunConfig, *, note: str = "") -> None:
    from backtester.backtest import run as run_backtest
    from backtester.cli.render import RichProgress, show_run

    with RichProgress("run") as progress:
        result = run_backtest(config, api_key=api_key_of(config), progress=progress)
    _tell_run(result)
    show_run(result.database, result.run_id, note=note)
    if any(result.counts.get(status) for status in ("failed", "skipped_budget")):
        raise typer.Exit(1)


def api_key_of(config: RunConfig) -> str | None:
    """Return the key of a configuration's provider from the environment, None where it has none.

    Raises:
        UsageError: A setting that would be written down holds a key.
    """
    from tradingagents_core.llm.factory import PROVIDERS

    refuse_keys({name: getattr(config, name) for name in _WRITTEN}, variable=config.api_key_env)
    provider = PROVIDERS.get(config.provider)
    variable = config.api_key_env or (provider.key_variable if provider else None)
    return environment().get(variable) if variable else None


def _tell_run(result: RunResult) -> None:
    if not result.new:
        typer.echo(f"run {result.run_id} is finished already: 0 model calls, nothing to do\n")
        return
    kept = f", {result.kept} kept from before" if result.kept else ""
    typer.echo(
        f"run {result.run_id}: {result.cells} cells{kept}, "
        f"{result.model_calls} model calls, {result.hits} replies from the cache\n"
    )


def _configure(
    config_file: Path | None, manifest: Path | None, flags: dict[str, Any], settings: list[str]
) -> RunConfig:
    from backtester.config import config_from_manifest, load_config, setting

    for text in settings:
        key, value = setting(text)
        flags[key] = value
    if manifest is not None:
        if config_file is not None:
            raise UsageError("give a config file or --from MANIFEST, not both")
        return config_from_manifest(manifest, flags)
    return load_config(config_file, environ=environment(), flags=flags)


def words_of(text: str | None) -> tuple[str, ...] | None:
    """Return the words between the commas of an option, None where it was not given."""
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())
