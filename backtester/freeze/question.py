"""Freeze what one question needs, where vendors are named and no snapshot is.

The snapshot is named after the question, so that the same question stands on the same one and asks
no vendor again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final

from backtester.config import RunConfig
from backtester.freeze.freezing import Step, Way, capture_instant, freeze, load_plan, settings_from
from backtester.freeze.plan import SUBJECTS, FreezePlan
from backtester.settlement.benchmark import benchmark_for
from backtester.snapshots.snapshot import Snapshot

# Two years: what the longest indicator needs, and what earlier decisions are settled with.
WARMUP: Final = 504
# What is asked where a table has no instrument and nobody has named a subject.
SUBJECTS_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "macro": ("cpi", "unemployment", "fed funds", "ten-year"),
    "prediction_markets": ("recession", "fed rates"),
}
GLOBAL_NEWS: Final = ("economy_macro",)
_AGENT: Final = "BACKTESTER_USER_AGENT"
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]")


def names_vendors(settings: RunConfig) -> bool:
    """Say whether settings name vendors to freeze from, and no snapshot."""
    named = bool(settings.data_vendors or settings.tool_vendors)
    return named and "snapshot" not in settings.model_fields_set


def plan_of_question(settings: RunConfig, symbol: str, day: date) -> FreezePlan:
    """Return what is frozen for one question: the tables whose vendors are named, and bars.

    Args:
        settings: Names the vendors, and the benchmark.
        symbol: Symbol that is asked about.
        day: Date that is asked about.

    Raises:
        UsageError: A symbol, vendor or chain does not fit.
    """
    benchmark = benchmark_for(symbol, settings.benchmark_of(symbol)).symbol
    flags: dict[str, Any] = {
        "name": "asked",
        "symbols": (symbol,),
        "benchmarks": () if benchmark is None else (benchmark,),
        "start": day,
        "end": day,
        "warmup": WARMUP,
        "data_vendors": dict(settings.data_vendors),
        "tool_vendors": dict(settings.tool_vendors),
    }
    tables = tuple(load_plan(None, flags).chains)
    flags |= {
        "tables": tables,
        "subjects": {name: SUBJECTS_ASKED[name] for name in SUBJECTS if name in tables},
        "global_news": GLOBAL_NEWS if "news" in tables else (),
    }
    plan = load_plan(None, flags)
    name = f"asked-{_STRANGE.sub('-', plan.symbols[0])}-{day}-{plan.fingerprint[:8]}"
    return plan.model_copy(update={"name": name})


def freeze_question(
    settings: RunConfig,
    symbol: str,
    day: date,
    *,
    keys: Mapping[str, str],
    captured_at: datetime | None = None,
    say: Callable[[str], None] | None = None,
) -> Snapshot:
    """Return the snapshot of a question, frozen where it is not there yet.

    Args:
        settings: Names the vendors, the benchmark and the data folder.
        symbol: Symbol that is asked about.
        day: Date that is asked about; its session must be over.
        keys: Variable -> value: the vendors' keys, and ``BACKTESTER_USER_AGENT``.
        captured_at: Now, or None for the clock's own.
        say: Told each step in a line.

    Raises:
        UsageError: The question does not fit, or its session is not over.
        VendorError: A vendor failed; asked again, it goes on.
        DataError: For rows that must not be stored.
    """
    agent = keys.get(_AGENT, "").strip() or None

    def tell(step: Step) -> None:
        if say is not None:
            say(f"{step.table} {step.subject}: {step.reason or step.vendor}")

    way = Way(settings_of=settings_from(keys, user_agent=agent), progress=tell)
    plan = plan_of_question(settings, symbol, day)
    now = captured_at or capture_instant()
    return freeze(plan, settings.data_dir, captured_at=now, way=way).snapshot
