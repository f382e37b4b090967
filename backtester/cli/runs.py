"""Commands that run and replay: ``plan``, ``run``, ``replay``, ``settings``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli.environment import (
    data_folder,
    environment,
    folder_in_environment,
    refuse_keys,
    reports_folder,
)
from backtester.cli.models import tell_unknown_models, tell_unset_keys, with_addresses
from backtester.errors import CacheMiss, UsageError, VerificationFailed
from backtester.spellings import MOST_WORKERS, value_of_text
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.backtest import RunResult
    from backtester.config import RunConfig, Tier
    from backtester.packs.replays import ReplayResult


def place(flag: str) -> Callable[[object], Path]:
    """Return a reader of folders; an empty word is no folder, and not the working one either.

    Args:
        flag: Name of the option, for the message.
    """

    def read(given: object) -> Path:
        if not str(given).strip():
            raise UsageError(f"{flag} is empty: name a folder, or leave it out")
        return Path(str(given))

    return read


ReportsDir = Annotated[
    Path | None,
    typer.Option(
        "--reports-dir",
        parser=place("--reports-dir"),
        metavar="PATH",
        help="Folder of runs and results database.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=place("--data-dir"),
        metavar="PATH",
        help="Folder of snapshots and cache.",
    ),
]


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
RunName = Annotated[
    str, typer.Argument(help="Run id, a part of it, or 'latest': the one begun or imported last.")
]

# Settings into which a key may slip; all of them are written into the manifest.
_WRITTEN = (
    "name",
    *("quick_model", "deep_model"),
    *(
        f"{tier}{what}"
        for tier in ("", "quick_", "deep_")
        for what in ("base_url", "endpoint_alias")
    ),
)

Text = str | None
Number = int | None
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file with settings.")]
FromManifest = Annotated[
    Path | None, typer.Option("--from", help="Repeat the run of this manifest.json, or packed run.")
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
ProviderName = Annotated[Text, typer.Option(help="A provider of 'backtester models'.")]
Model = Annotated[Text, typer.Option(help="Model of both tiers.")]
BaseUrl = Annotated[Text, typer.Option(help="Endpoint of the provider.")]
Portfolio = Annotated[
    Text,
    typer.Option(
        help="JSON file with what you hold, which the portfolio manager is shown: "
        '{"as_of": "2018-01-02", "currency": "USD", "cash": 25000, "positions": [{"ticker": '
        '"AAPL", "shares": 100, "price": 172.26, "cost": 150.0}]}; as_of and cost may be left out. '
        "Its prices are held against the snapshot's, and every date is shown it as it stands."
    ),
]
ShowBook = Annotated[
    bool | None,
    typer.Option(
        "--show-book/--no-show-book",
        help="Show the portfolio manager the simulated book of the decisions so far.",
    ),
]
OnFailure = Annotated[Text, typer.Option(help="continue or stop.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting, as KEY=VALUE; may be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("plan")(_with_settings_of_run(plan))
    app.command("run")(run)
    app.command("replay")(replay)
    app.command("settings")(settings_list)


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
    portfolio: Portfolio = None,
    show_book: ShowBook = None,
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
    run_and_show(_asked_for(context))


def _asked_for(context: typer.Context) -> RunConfig:
    from backtester.loading import with_settings

    flags = dict(context.params)
    flags.pop("as_json", None)
    config_file, manifest, settings, model = (
        flags.pop(word) for word in ("config_file", "manifest", "settings", "model")
    )
    flags |= {word: words_of(flags[word]) for word in ("tickers", "analysts")}
    flags = with_settings(flags, settings or [])
    # A model of both tiers is less than one that is named for a tier.
    return _configure(config_file, manifest, {"quick_model": model, "deep_model": model, **flags})


def plan(context: typer.Context, as_json: bool = False, **_: Any) -> None:
    """Count cells, calls, tokens and cost of a run before it; spends nothing, needs no key."""
    from backtester.cli.bills import show_estimate
    from backtester.estimates.estimate import estimate
    from backtester.snapshots.snapshot import open_snapshot
    from backtester.spending.tariff import tariff_of

    config = _asked_for(context)
    snapshot = open_snapshot(config.snapshot, config.data_dir)
    show_estimate(estimate(config, snapshot, tariff_of(config)), as_json=as_json)


def _with_settings_of_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``run``, and ``--json``."""
    asked = signature(run, eval_str=True).parameters.values()
    wanted = Parameter(
        "as_json",
        Parameter.POSITIONAL_OR_KEYWORD,
        default=False,
        annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")],
    )

    @wraps(command)
    def given(**options: Any) -> None:
        command(**options)

    given.__signature__ = Signature([*asked, wanted])  # type: ignore[attr-defined]
    given.__annotations__ = {p.name: p.annotation for p in (*asked, wanted)}
    del given.__wrapped__
    return given


def replay(
    name: Annotated[
        str, typer.Argument(help="Run id, a part of it, or 'latest'; or a packed run's file.")
    ],
    keep: Annotated[
        Path | None, typer.Option("--keep", help="Keep the replay's files in this folder.")
    ] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Replay a finished run, or a packed one, without the network and compare its results root."""
    from backtester.cli.render import RichProgress
    from backtester.packs.replays import replay as replay_run
    from backtester.packs.replays import replay_pack
    from backtester.replies.cassette import names_cassette
    from backtester.runs.folder import find_run

    data, count = data_folder(data_dir), 1 if workers is None else workers
    with RichProgress("replay") as progress:
        if names_cassette(name):
            path = Path(name)
            result = replay_pack(path, data, workers=count, keep=keep, progress=progress)
        else:
            folder = find_run(reports_folder(reports_dir), name)
            result = replay_run(folder, data, workers=count, keep=keep, progress=progress)
    tell_replay(result)


def settings_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every setting of a run with its default; a TOML file and --set take these names."""
    from backtester.cli.render import show_settings
    from backtester.config import RunConfig, is_identity

    fields = RunConfig.model_fields.items()
    if as_json:
        from pydantic_core import to_jsonable_python

        rows = [
            {
                "name": name,
                "required": field.is_required(),
                "default": None if field.is_required() else to_jsonable_python(field.default),
                "identity": is_identity(name),
                "description": field.description or "",
            }
            for name, field in fields
        ]
        typer.echo(json.dumps(rows, indent=2, sort_keys=True))
        return
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


def tell_replay(result: ReplayResult) -> None:
    """Print what a replay found.

    Raises:
        CacheMiss: Calls had no recording.
        VerificationFailed: The roots differ.
    """
    typer.echo(f"run            {result.run_id}")
    typer.echo(f"cells          {result.cells}")
    typer.echo(f"replies        {result.hits} from the record, {len(result.misses)} missing")
    typer.echo("network        blocked")
    typer.echo(f"recorded root  {result.recorded_root}")
    typer.echo(f"replayed root  {result.root}")
    if result.misses:
        for miss in result.misses[:3]:
            typer.echo(f"miss: {printable(miss, keep='')}", err=True)
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


def run_and_show(config: RunConfig, *, note: str = "") -> None:
    """Run a configuration and print what came out; failed cells end the command with 1."""
    from backtester.backtest import run as run_backtest
    from backtester.cli.render import RichProgress, show_run

    api_keys = api_keys_of(config)
    tell_unknown_models(config, api_keys)
    tell_unset_keys(config)
    with RichProgress("run") as progress:
        result = run_backtest(config, api_keys=api_keys, progress=progress)
    _tell_run(result)
    for line in result.notes:
        typer.echo(printable(line), err=True)
    show_run(result.database, result.run_id, note=note)
    if any(result.counts.get(status) for status in ("failed", "skipped_budget")):
        raise typer.Exit(1)


def api_keys_of(config: RunConfig) -> dict[str, str]:
    """Return the keys of a configuration's providers from the environment, without missing ones.

    They stand under the provider's name, or under the tier's for a variable that the settings name.

    Raises:
        UsageError: A setting that would be written down holds a key.
    """
    from tradingagents_core.llm.providers import PROVIDERS

    refuse_keys({name: getattr(config, name) for name in _WRITTEN}, variables=key_variables(config))
    keys: dict[str, str] = {}
    tiers: tuple[Tier, ...] = ("quick", "deep")
    for tier in tiers:
        name = config.model_spec(tier).provider
        named = config.key_variable_of(tier)
        of_provider = PROVIDERS[name].key_variables if name in PROVIDERS else ()
        variables = (named,) if named else of_provider
        held = [environment().get(variable, "") for variable in variables]
        key = next(filter(None, held), "")
        if key:
            keys[tier if named else name] = key
    return keys


def key_variables(config: RunConfig) -> tuple[str, ...]:
    """Return the variables that a configuration names for keys."""
    named = (config.api_key_env, config.quick_api_key_env, config.deep_api_key_env)
    return tuple(variable for variable in named if variable)


def _tell_run(result: RunResult) -> None:
    if not result.new:
        typer.echo(f"run {result.run_id} is finished already: 0 model calls, nothing to do\n")
        return
    kept = f", {result.kept} kept from before" if result.kept else ""
    typer.echo(f"run {result.run_id}: {result.cells} cells{kept}, {result.bill.words()}\n")


def _configure(config_file: Path | None, manifest: Path | None, flags: dict[str, Any]) -> RunConfig:
    from backtester.loading import config_from_manifest, load_config
    from backtester.replies.cassette import names_cassette

    if manifest is not None:
        if config_file is not None:
            raise UsageError("give a config file or --from MANIFEST, not both")
        if names_cassette(str(manifest)):
            from backtester.packs.packs import config_of_pack

            return config_of_pack(manifest, flags, folders=_folders_in_environment())
        return config_from_manifest(manifest, flags, folders=_folders_in_environment())
    return with_addresses(load_config(config_file, environ=environment(), flags=flags))


def _folders_in_environment() -> dict[str, Any]:
    """Return the folders in which other commands would look for the run."""
    given = {field: folder_in_environment(field) for field in ("data_dir", "reports_dir")}
    return {field: Path(found.value) for field, found in given.items() if found is not None}


def words_of(text: str | None) -> tuple[str, ...] | None:
    """Return the words between the commas of an option, None where it was not given."""
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())
