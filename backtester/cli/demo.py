"""The command ``demo``: the main job offline, by the rulebook or from a real model's recording."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final

import typer

from backtester.cli.environment import data_folder, reports_folder
from backtester.cli.runs import DataDir, ReportsDir, Workers, run_and_show, tell_replay

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
_RULEBOOK_NOTE: Final = (
    "The model is 'rulebook', published textbook rules and no language model: "
    "these figures show the machinery at work and are evidence of nothing else."
)
_REAL_MODEL_NOTE: Final = (
    "The model is SmolLM2 with 135 million parameters: its arguments are silly and some replies "
    "were cut. The protocol, the failures and the replay are real; the figures are evidence of "
    "nothing."
)

RealModel = Annotated[
    bool,
    typer.Option("--real-model", help="Replay the recording of a real, very small language model."),
]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("demo")(demo)


def demo(
    real_model: RealModel = False,
    workers: Workers = None,
    data_dir: DataDir = None,
    reports_dir: ReportsDir = None,
) -> None:
    """Run the main job on the snapshot that comes with the package, offline and without a key."""
    from backtester.loading import load_config

    if real_model:
        _replay_real_model(workers, data_dir, reports_dir)
        return
    places = {"data_dir": data_folder(data_dir), "reports_dir": reports_folder(reports_dir)}
    run_and_show(load_config(flags={**DEMO, **places, "workers": workers}), note=_RULEBOOK_NOTE)


def _replay_real_model(workers: Workers, data_dir: DataDir, reports_dir: ReportsDir) -> None:
    """Take the recording over as a run of this workspace, replay it, and show the run."""
    from backtester.cli.render import RichProgress, show_run
    from backtester.packs.adoption import adopt, real_model_pack
    from backtester.packs.replays import replay
    from backtester.rescore import rescore
    from backtester.runs.folder import DATABASE_NAME

    data, reports = data_folder(data_dir), reports_folder(reports_dir)
    adopted = adopt(real_model_pack(), data_dir=data, reports_dir=reports)
    with RichProgress("replay") as progress:
        result = replay(adopted.folder, data, workers=workers or 1, progress=progress)
    tell_replay(result)
    rescore(adopted.folder, data, {})
    typer.echo("")
    show_run(reports / DATABASE_NAME, result.run_id, note=_REAL_MODEL_NOTE)
