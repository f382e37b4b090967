"""Walk the agent pipeline over dates, offline and repeatable to the byte.

    from backtester import RunConfig, Snapshot, leakcheck, load_run, replay, run
    from backtester import DEFAULT_CONFIG, TradingAgentsGraph

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backtester.api import DEFAULT_CONFIG, Run, TradingAgentsGraph, load_run, replay, run
    from backtester.audits import leakcheck
    from backtester.config import RunConfig
    from backtester.snapshots.snapshot import Snapshot

__all__ = [
    "DEFAULT_CONFIG",
    "Run",
    "RunConfig",
    "Snapshot",
    "TradingAgentsGraph",
    "leakcheck",
    "load_run",
    "replay",
    "run",
]

_HOMES = {
    "DEFAULT_CONFIG": "backtester.api",
    "Run": "backtester.api",
    "TradingAgentsGraph": "backtester.api",
    "leakcheck": "backtester.audits",
    "load_run": "backtester.api",
    "replay": "backtester.api",
    "run": "backtester.api",
    "RunConfig": "backtester.config",
    "Snapshot": "backtester.snapshots.snapshot",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'backtester' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
