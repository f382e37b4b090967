"""The command ``analyze``: one decision, watched, with its reports."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli import ask
from backtester.cli.environment import data_folder, environment, refuse_keys, reports_folder
from backtester.cli.models import tell_unknown_models, tell_unset_keys, with_addresses
from backtester.cli.runs import (
    Analysts,
    BaseUrl,
    Benchmark,
    DataDir,
    Model,
    Portfolio,
    ProviderName,
    ReportsDir,
    Settings,
    SnapshotName,
    Text,
    api_keys_of,
    key_variables,
    words_of,
)
from backtester.errors import UsageError
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from backtester.cli.live import PipeView, TerminalView
    from backtester.config import RunConfig
    from backtester.desk.desk import Analysis, Desk
    from backtester.snapshots.snapshot import Snapshot

Ticker = Annotated[
    Text, typer.Argument(metavar="TICKER", help="Symbol or instrument of the snapshot.")
]
Day = Annotated[Text, typer.Argument(metavar="DATE", help="Date of the decision, YYYY-MM-DD.")]
ConfigPath = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.")]
Depth = Annotated[Text, typer.Option(help="Debate rounds: shallow (1), medium (3) or deep (5).")]
QuickModel = Annotated[Text, typer.Option(help="Model for quick thinking.")]
DeepModel = Annotated[Text, typer.Option(help="Model for deep thinking: the two judges.")]
Language = Annotated[Text, typer.Option(help="Language of reports and decisions.")]
MemoryName = Annotated[
    Text,
    typer.Option(help="Name of the memory to learn from and add to, or 'off'; 'default' if none."),
]
KeepCheckpoint = Annotated[
    bool | None,
    typer.Option("--checkpoint/--no-checkpoint", help="Go on where a stopped analysis was."),
]
ClearCheckpoints = Annotated[
    bool, typer.Option("--clear-checkpoints", help="Forget all stopped analyses first.")
]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("analyze")(analyze)


def analyze(
    context: typer.Context,
    ticker: Ticker = None,
    day: Day = None,
    config_file: ConfigPath = None,
    analysts: Analysts = None,
    depth: Depth = None,
    provider: ProviderName = None,
    model: Model = None,
    quick_model: QuickModel = None,
    deep_model: DeepModel = None,
    base_url: BaseUrl = None,
    language: Language = None,
    snapshot: SnapshotName = None,
    benchmark: Benchmark = None,
    memory: MemoryName = None,
    portfolio: Portfolio = None,
    checkpoint: KeepCheckpoint = None,
    clear_checkpoints: ClearCheckpoints = False,
    settings: Settings = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Decide one ticker on one date, with live progress and a report tree.

    Without TICKER or DATE it asks, where there is a terminal to ask at. A config file that also
    serves runs will do: its tickers, dates, grid and trials give way to the question.
    """
    _refuse_empty(context)
    told = _told(context)
    if clear_checkpoints and not _cleared(
        _before_questions(config_file, told).reports_dir, go_on=bool(ticker or _at_a_desk())
    ):
        return
    given = {"ticker": ticker, "date": day}
    answers = {word: text for word, text in given.items() if text is not None}
    if len(answers) < len(given):
        answers = _answers(context, answers, told, config_file)
    config = _configure(answers, told, config_file)
    _decide(config, _memory_name(memory, told, config))


def _told(context: typer.Context) -> dict[str, Any]:
    """Return what flags and ``--set`` say, by the names of settings."""
    from backtester.desk.question import refuse_run_settings
    from backtester.loading import with_settings

    given = context.params
    settings: list[str] = given["settings"] or []
    refuse_run_settings((text.partition("=")[0] for text in settings), "--set")
    flags = {
        **_fields_of(given),
        "snapshot": given["snapshot"],
        "portfolio": given["portfolio"],
        "checkpoint_enabled": given["checkpoint"],
        "data_dir": given["data_dir"] and data_folder(given["data_dir"]),
        "reports_dir": given["reports_dir"] and reports_folder(given["reports_dir"]),
    }
    model = given["model"]
    both = {} if model is None else {"quick_model": model, "deep_model": model}
    # A model of both tiers is less than one that is named for a tier.
    return {**both, **with_settings(flags, settings)}


def _fields_of(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers by the names of settings, as far as there are any."""
    depth = answers.get("depth")
    rounds = ask.rounds_of(depth) if depth is not None else None
    fields = {field: answers.get(word) for word, field in ask.FIELDS.items()}
    fields |= {"max_debate_rounds": rounds, "max_risk_discuss_rounds": rounds}
    fields |= {"analysts": words_of(answers.get("analysts"))}
    return {name: value for name, value in fields.items() if value is not None}


def _refuse_empty(context: typer.Context) -> None:
    """Refuse an empty text: a shell's variable that is not set must not pass for the default."""
    for option in context.command.params:
        if context.params.get(str(option.name)) == "":
            word = option.opts[0] if option.opts[0].startswith("-") else str(option.metavar)
            raise UsageError(f"{word} is empty: write something, or leave it out")


def _answers(
    context: typer.Context, given: dict[str, str], told: dict[str, Any], config_file: Path | None
) -> dict[str, str]:
    """Return ticker and date, and answers to what no flag, file or variable says."""
    if not _at_a_desk():
        missing = [word for word in ("ticker", "date") if word not in given]
        raise UsageError(
            f"{' and '.join(word.upper() for word in missing)} missing, and there is no terminal "
            "to ask at: write 'backtester analyze TICKER DATE', such as 'NVDA 2018-06-29'"
        )
    from backtester.snapshots.snapshot import open_snapshot

    base = _before_questions(config_file, told)
    # What was given is shown again below the questions, so it is looked at before.
    api_keys_of(base)
    said = base.model_fields_set
    known = {word: str(getattr(base, name)) for word, name in ask.FIELDS.items() if name in said}
    snapshot = open_snapshot(base.snapshot, base.data_dir)
    answers = ask.ask(given, ask.recall(), snapshot, known=known)
    refuse_keys(answers, variables=key_variables(base))
    ask.remember(answers)
    words = ask.command_of(answers, others=_given_words(context))
    typer.echo(f"the same without questions: {words}\n", err=True)
    return answers


def _given_words(context: typer.Context) -> list[str]:
    """Return the options as somebody gave them."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if not option.opts[0].startswith("--") or value is None:
            continue
        if option.name != "clear_checkpoints":
            for one in value if isinstance(value, list | tuple) else [value]:
                switch = [*option.opts, *option.secondary_opts] if isinstance(one, bool) else []
                words += [switch[not one]] if switch else [option.opts[0], str(one)]
    return words


def _before_questions(config_file: Path | None, told: dict[str, Any]) -> RunConfig:
    """Return the settings of any question: what is asked must not matter to who asks."""
    some_day = ask.day_of("2018-01-02")
    any_question = {"tickers": ("AAPL",), "start": some_day, "end": some_day, "grid": "daily"}
    return _load(config_file, {**told, **any_question})


def _configure(
    answers: dict[str, str], told: dict[str, Any], config_file: Path | None
) -> RunConfig:
    day = ask.day_of(answers["date"])
    question = {"tickers": (answers["ticker"],), "start": day, "end": day, "grid": "daily"}
    config = with_addresses(_load(config_file, {**_fields_of(answers), **told, **question}))
    if "checkpoint_enabled" in config.model_fields_set:
        return config
    # A single decision is dear enough to be worth its checkpoints; they cost a run of many.
    return config.model_copy(update={"checkpoint_enabled": True})


def _memory_name(memory: str | None, told: dict[str, Any], config: RunConfig) -> str:
    from backtester.runs.named_memory import OFF, memory_in_force

    name = memory_in_force(memory, config.memory)
    if memory is not None and "memory" in told and (name == OFF) != (told["memory"] == OFF):
        raise UsageError(
            f"--memory {memory} and --set memory={told['memory']} say different things: "
            "keep one of them"
        )
    return name


def _load(config_file: Path | None, flags: dict[str, Any]) -> RunConfig:
    from backtester.loading import load_config

    return load_config(config_file, environ=environment(), flags=flags)


def _decide(config: RunConfig, memory: str) -> None:
    from backtester.desk.desk import Desk
    from backtester.snapshots.snapshot import open_snapshot
    from backtester.texts.report import write_report_tree

    (ticker,) = config.tickers
    api_keys = api_keys_of(config)
    desk = Desk(
        open_snapshot(config.snapshot, config.data_dir),
        memory=memory,
        data_dir=config.data_dir,
        reports_dir=config.reports_dir,
        api_keys=api_keys,
    )
    tell_unknown_models(config, api_keys)
    tell_unset_keys(config)
    for note in _notes(desk.snapshot, config, ticker):
        typer.echo(f"note: {printable(note)}", err=True)
    with _view() as view:
        analysis = desk.decide(config.model_dump(), ticker, config.end, watcher=view)
    report = write_report_tree(analysis.decision.state, analysis.folder)
    _tell(analysis, desk, report)


def _notes(snapshot: Snapshot, config: RunConfig, ticker: str) -> Iterator[str]:
    """Yield what a decision is going to be about that its question does not say."""
    from backtester.settlement.broker import benchmark_for
    from backtester.settlement.pricing import market_of
    from backtester.walk.plan import resolve_ticker

    day = config.end
    if not snapshot.start <= day <= snapshot.end:
        return  # The desk refuses it.
    instrument = resolve_ticker(snapshot, ticker, config)
    session = market_of(snapshot, instrument).calendar.last_on_or_before(day)
    if session != day:
        when = "at the open of" if config.decision_time == "open" else "on"
        yield f"{day} is no session: decided {when} {session}"
    choice = benchmark_for(instrument, config.benchmark_of(instrument))
    held = snapshot.instruments()
    if choice.symbol is None or choice.source == "explicit" or choice.symbol in held:
        return
    if not snapshot.resolve(choice.symbol, session):
        example = next((name for name in held if name.startswith("^")), "none")
        yield (
            f"benchmark {choice.symbol} is not in the snapshot: no alpha; name one with "
            f"--benchmark, for example {example}"
        )


def _tell(analysis: Analysis, desk: Desk, report: Path) -> None:
    from backtester.cli.live import Usage, lessons_in_words

    record = analysis.record
    lessons = [call for lesson in analysis.settled for call in lesson.calls]
    tools = len({(read.node, read.index) for read in record.reads if read.tool})
    memory = desk.memory_path.parent if desk.memory_path is not None else "off"
    lines = {
        "analysis": f"{record.symbol} on {record.key.session}, known to {record.cutoff:%H:%M}Z",
        "used": f"{Usage.of([*lessons, *record.calls])}; {tools} tool calls",
        "memory": f"{memory}, {lessons_in_words(len(record.lessons_shown))}",
        "reports": str(report),
        "rating": record.rating or "none: no rating could be read",
    }
    for entry in analysis.left_open:
        typer.echo(printable(f"note: memory {desk.memory}: {entry}"), err=True)
    for word, text in lines.items():
        typer.echo(f"{word:<10}{text}")


def _view() -> TerminalView | PipeView:
    from rich.console import Console

    from backtester.cli.live import PipeView, TerminalView

    out = Console(highlight=False)
    if out.is_terminal:
        return TerminalView(out)
    return PipeView(out, Console(stderr=True, highlight=False))


def _cleared(reports_dir: Path, *, go_on: bool) -> bool:
    from backtester.desk.checkpoints import clear_all

    typer.echo(f"checkpoints cleared: {clear_all(reports_dir / 'analyses')}", err=True)
    return go_on


def _at_a_desk() -> bool:
    """Say whether there is a person to ask."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
