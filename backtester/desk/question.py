"""What a single decision is asked with: the configuration of a run of one cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from backtester.config import SHOWN_BOOK, MemoryScope, RunConfig
from backtester.errors import DataError, UsageError
from backtester.loading import load_config
from backtester.runs.named_memory import OFF
from backtester.settlement.pricing import market_of
from backtester.snapshots.snapshot import Snapshot
from backtester.spellings import ALIASES
from backtester.walk.plan import require_session_held, resolve_ticker

OF_THE_QUESTION: Final = frozenset({"tickers", "start", "end", "grid"})
"""Settings of a run that a single decision is asked with."""

OF_MANY: Final = frozenset(
    {
        *("trials", "trials_share_memory", "warmup", "workers", "backend", "dask_scheduler"),
        *("on_failure", "name", "save_states"),
        *SHOWN_BOOK,
    }
)
"""Settings that shape a run of many decisions and mean nothing to a single one."""


def refuse_run_settings(names: Iterable[str], where: str) -> None:
    """Refuse settings of a run that somebody gives to a single decision, where they do nothing.

    A file or a variable may serve runs too, so what it says of these is passed over without a
    word; what is said to one decision alone is meant.

    Args:
        names: Names of settings as they were given.
        where: What they were given in, for the message.

    Raises:
        UsageError: Names the first.
    """
    for name in names:
        field = ALIASES[name].key if name in ALIASES else name
        if field in OF_THE_QUESTION:
            raise UsageError(
                f"{where} {name}: a single decision is about one ticker on one date, which are "
                "its arguments: leave it out"
            )
        if field in OF_MANY:
            raise UsageError(
                f"{where} {name}: it shapes a run of many decisions and means nothing to a single "
                "one: leave it out"
            )


def config_of(
    settings: Mapping[str, Any],
    ticker: str,
    day: date,
    *,
    snapshot: Snapshot,
    memory: str,
    data_dir: Path,
    reports_dir: Path,
) -> RunConfig:
    """Return the configuration of a run of one cell.

    Args:
        settings: Fields of `RunConfig`; what is asked, and the following, win over them.
        ticker: Symbol or instrument id.
        day: Session, or a date that moves to the session before.
        snapshot: What it is decided on.
        memory: Name of the memory, or ``off``.
        data_dir: Folder of the reply cache.
        reports_dir: Folder of analyses and memories.

    Raises:
        DataError: The snapshot does not hold the ticker or the date.
        UsageError: A setting does not fit.
    """
    asked = {
        "tickers": (ticker,),
        "start": day,
        "end": day,
        "grid": "daily",
        "trials": 1,
        "trials_share_memory": "own",
        "warmup": 0,
        "workers": 1,
        "backend": "threading",
        "show_book": False,
        "snapshot": snapshot.name,
        "data_dir": data_dir,
        "reports_dir": reports_dir,
    }
    config = load_config(settings=settings, flags=asked)
    asked_for = _placed(config, snapshot, day)
    return asked_for.model_copy(update={"memory": _scope(config, memory)})


def _placed(config: RunConfig, snapshot: Snapshot, day: date) -> RunConfig:
    """Return a configuration with the instrument and the session that are meant."""
    if not snapshot.start <= day <= snapshot.end:
        raise DataError(
            f"{day} is outside snapshot {snapshot.name}, which covers "
            f"{snapshot.start} to {snapshot.end}: choose a date within it"
        )
    (asked_for,) = config.tickers
    instrument = resolve_ticker(snapshot, asked_for, config)
    session = market_of(snapshot, instrument).calendar.last_on_or_before(day)
    require_session_held(instrument, session, snapshot)
    return config.model_copy(update={"tickers": (instrument,), "start": session, "end": session})


def _scope(config: RunConfig, memory: str) -> MemoryScope:
    """Return whose lessons are shown; a memory that was named is not switched off."""
    if memory == OFF:
        return "off"
    return config.memory if config.memory != OFF else "portfolio"
