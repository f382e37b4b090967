"""The command ``analyze``: one decision, watched, with its reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backtester.cli import ask
from backtester.cli.environment import data_folder, environment, refuse_keys, reports_folder
from backtester.cli.runs import (
    Analysts,
    BaseUrl,
    Benchmark,
    DataDir,
    Model,
    ProviderName,
    ReportsDir,
    Settings,
    SnapshotName,
    Text,
    api_key_of,
    words_of,
)
from backtester.errors import UsageError

if TYPE_CHECKING:
    from backtester.cli.live import PipeView, TerminalView
    from backtester.config import RunConfig
    from backtester.desk import Analysis, Desk

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
    str, typer.Option("--memory", help="Name of the memory to learn from and add to, or 'off'.")
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
    memory: MemoryName = "default",
    checkpoint: KeepCheckpoint = None,
    clear_checkpoints: ClearCheckpoints = False,
    settings: Settings = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Decide one ticker on one date, with live progress and a report tree.

    Without TICKER or DATE it asks, where there is a terminal to ask at.
    """
    places = {"data_dir": data_folder(data_dir), "reports_dir": reports_folder(reports_dir)}
    if clear_checkpoints and not _cleared(
        places["reports_dir"], go_on=bool(ticker or _at_a_desk())
    ):
        return
    given = {
        "ticker": ticker,
        "date": day,
        "analysts": analysts,
        "depth": depth,
        "provider": provider,
        "base_url": base_url,
        "language": language,
        "benchmark": benchmark,
        "quick_model": quick_model or model,
        "deep_model": deep_model or model,
    }
    flags: dict[str, Any] = {"snapshot": snapshot, "checkpoint_enabled": checkpoint, **places}
    answers = _answers(given, flags, config_file)
    config = _configure(answers, flags, config_file, settings or [])
    _decide(config, memory, answers["ticker"])


def _answers(
    given: dict[str, str | None], flags: dict[str, Any], config_file: Path | None
) -> dict[str, str]:
    """Return what was given, completed by questions where something is missing."""
    missing = [word for word in ("ticker", "date") if given[word] is None]
    if not missing:
        return {key: value for key, value in given.items() if value is not None}
    if not _at_a_desk():
        raise UsageError(
            f"{' and '.join(word.upper() for word in missing)} missing, and there is no terminal "
            "to ask at: write 'backtester analyze TICKER DATE', such as 'NVDA 2018-06-29'"
        )
    from backtester.snapshot import open_snapshot

    # Questions need a snapshot before there is a ticker: any will do for its name.
    some_day = ask.day_of("2018-01-02")
    known = {"tickers": ("AAPL",), "start": some_day, "end": some_day}
    base = _load(config_file, {**known, **flags})
    answers = ask.ask(given, ask.recall(), open_snapshot(base.snapshot, base.data_dir))
    refuse_keys(answers, variable=base.api_key_env)
    ask.remember(answers)
    typer.echo(f"the same without questions: {ask.command_of(answers)}\n", err=True)
    return answers


def _configure(
    answers: dict[str, str],
    flags: dict[str, Any],
    config_file: Path | None,
    settings: list[str],
) -> RunConfig:
    from backtester.config import setting

    day = ask.day_of(answers["date"])
    rounds = ask.rounds_of(answers["depth"]) if "depth" in answers else None
    wanted = {
        "tickers": (answers["ticker"],),
        "start": day,
        "end": day,
        "grid": "daily",
        "analysts": words_of(answers.get("analysts")),
        "provider": answers.get("provider"),
        "max_debate_rounds": rounds,
        "max_risk_discuss_rounds": rounds,
        "base_url": answers.get("base_url"),
        "output_language": answers.get("language"),
        **{name: answers.get(name) for name in ("quick_model", "deep_model", "benchmark")},
        **flags,
    }
    wanted.update(setting(text) for text in settings)
    config = _load(config_file, wanted)
    if "checkpoint_enabled" in config.model_fields_set:
        return config
    # A single decision is dear enough to be worth its checkpoints; they cost a run of many.
    return config.model_copy(update={"checkpoint_enabled": True})


def _load(config_file: Path | None, flags: dict[str, Any]) -> RunConfig:
    from backtester.config import load_config

    return load_config(config_file, environ=environment(), flags=flags)


def _decide(config: RunConfig, memory: str, ticker: str) -> None:
    from backtester.desk import Desk
    from backtester.reporting import write_report_tree
    from backtester.snapshot import open_snapshot

    desk = Desk(
        open_snapshot(config.snapshot, config.data_dir),
        memory=memory,
        data_dir=config.data_dir,
        reports_dir=config.reports_dir,
        api_key=api_key_of(config),
    )
    with _view() as view:
        analysis = desk.decide(config.model_dump(), ticker, config.end, watcher=view)
    report = write_report_tree(analysis.decision.state, analysis.folder)
    _tell(analysis, desk, report)


def _tell(analysis: Analysis, desk: Desk, report: Path) -> None:
    from backtester.cli.live import Usage

    record = analysis.record
    lessons = [call for lesson in analysis.settled for call in lesson.calls]
    tools = len({(read.node, read.index) for read in record.reads if read.tool})
    memory = desk.memory_path.parent if desk.memory_path is not None else "off"
    lines = {
        "analysis": f"{record.symbol} on {record.key.session}, known to {record.cutoff:%H:%M}Z",
        "used": f"{Usage.of([*lessons, *record.calls])}; {tools} tool calls",
        "memory": f"{memory}, {len(record.lessons_shown)} lessons shown",
        "reports": str(report),
        "rating": record.rating or "none: no rating could be read",
    }
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
    from backtester.checkpoints import clear_all

    typer.echo(f"checkpoints cleared: {clear_all(reports_dir / 'analyses')}", err=True)
    return go_on


def _at_a_desk() -> bool:
    """Say whether there is a person to ask."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
