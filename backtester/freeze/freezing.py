"""Turn vendors, or files, into a snapshot that is whole and proves itself.

`freeze` asks what a plan asks for, checks it and stores it. It can be stopped at any moment and
goes on when it is called again: answers are kept until the snapshot is there, the old snapshot of
that name (where one is replaced) stays whole until then, and of two freezes into one name one is
told that the other holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from backtester.errors import UsageError
from backtester.freeze.ask import Asking, Desk, Step
from backtester.freeze.extend import extend, require_extendable
from backtester.freeze.merge import merge
from backtester.freeze.parts import Parts, open_parts, parts_folder
from backtester.freeze.plan import FreezePlan, load_plan, require_over
from backtester.snapshots.diff import TableDiff
from backtester.snapshots.manifest import MANIFEST_NAME, load_manifest
from backtester.snapshots.snapshot import Snapshot, open_folder, open_snapshot, write_snapshot
from backtester.vendors.base import Pace, Vendor, VendorRow, VendorSettings

__all__ = [
    "FreezePlan",
    "Frozen",
    "Step",
    "capture_instant",
    "freeze",
    "load_plan",
    "settings_from",
]


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Hold what a freeze came to.

    Attributes:
        snapshot: The snapshot.
        asked: Requests that vendors were asked in this call.
        kept: Answers that were there from before it was stopped.
        already: Whether the snapshot was there, frozen by the same plan.
        changes: Of an extension: what the vendors say otherwise than before.
    """

    snapshot: Snapshot
    asked: int
    kept: int
    already: bool = False
    changes: tuple[TableDiff, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Way:
    """Say how a freeze goes about it.

    Attributes:
        settings_of: Settings for each vendor; see `settings_from`.
        vendors: Vendors that are made already, by name, such as one of files with frames.
        progress: Told each step.
        replace: Put the snapshot in the place of another one of that name.
        restart: Drop the answers that an unfinished freeze has kept.
    """

    settings_of: Callable[[VendorRow], VendorSettings]
    vendors: Mapping[str, Vendor] = field(default_factory=dict)
    progress: Callable[[Step], None] = lambda step: None
    replace: bool = False
    restart: bool = False


def settings_from(
    keys: Mapping[str, str], *, user_agent: str | None = None
) -> Callable[[VendorRow], VendorSettings]:
    """Return the settings of each vendor.

    Args:
        keys: Variable name -> value, such as the environment.
        user_agent: Who asks, for vendors that want to know.
    """

    def settings_of(row: VendorRow) -> VendorSettings:
        key = keys.get(row.key_variable, "").strip() if row.key_variable else ""
        return VendorSettings(api_key=key or None, user_agent=user_agent, pace=Pace(row.pause_s))

    return settings_of


def capture_instant() -> datetime:
    """Return now: a capture is made in real time, and only its manifest tells of it."""
    now = datetime.now(UTC)  # noqa: TID251 - see above
    return now.replace(microsecond=0)


def freeze(plan: FreezePlan, data_dir: Path, *, captured_at: datetime, way: Way) -> Frozen:
    """Capture what a plan asks for and store it as a snapshot.

    Args:
        plan: What is frozen.
        data_dir: Data folder; the snapshot goes below its ``snapshots``.
        captured_at: Now, zone-aware; one that goes on keeps the instant at which it was begun.
        way: How it goes about it.

    Raises:
        UsageError: The plan does not fit, or another snapshot of that name is there.
        RunLocked: Another process freezes into that name.
        VendorError: A vendor failed; what was answered is kept.
        DataError: For rows that must not be stored.
    """
    folder = data_dir / "snapshots" / plan.name
    base = None if plan.extends is None else open_snapshot(plan.extends, data_dir)
    if base is not None:
        require_extendable(plan, base)
    if not way.replace and not parts_folder(folder).exists() and _is_frozen(folder, plan):
        # Nothing is to be written, so the folder need not be one that can be.
        return Frozen(snapshot=open_folder(folder), asked=0, kept=0, already=True)
    with open_parts(folder, captured_at) as parts:
        if not way.replace and (folder / MANIFEST_NAME).is_file():
            if _is_frozen(folder, plan):
                parts.drop()
                return Frozen(snapshot=open_folder(folder), asked=0, kept=0, already=True)
            raise UsageError(
                f"snapshot {plan.name} is there and was frozen from something else: choose another "
                "name, or write --replace"
            )
        _begin(plan, parts, captured_at, restart=way.restart)
        kept = parts.count()
        desk = Desk(settings_of=way.settings_of, made=way.vendors, progress=way.progress)
        asking = Asking(plan, parts, desk)
        snapshot, changes = _stored(plan, folder, asking, parts.captured_at, base)
        parts.drop()
    return Frozen(snapshot=snapshot, asked=asking.asked, kept=kept, changes=changes)


def _stored(
    plan: FreezePlan, folder: Path, asking: Asking, captured_at: datetime, base: Snapshot | None
) -> tuple[Snapshot, tuple[TableDiff, ...]]:
    merged = merge(plan, list(asking.run()), captured_at)
    start = plan.declared_start
    changes: tuple[TableDiff, ...] = ()
    if base is not None:
        extension = extend(plan, base, merged)
        merged, changes = extension.merged, extension.changes
        start = min(start, base.start)
    snapshot = write_snapshot(
        folder,
        merged.tables,
        name=plan.name,
        declared_start=start,
        declared_end=plan.end,
        sources=merged.sources,
        absent=merged.absent,
        captured_at=captured_at,
        notes=merged.notes,
    )
    return snapshot, changes


def _begin(plan: FreezePlan, parts: Parts, captured_at: datetime, *, restart: bool) -> None:
    if restart:
        parts.begin_anew(captured_at)
    require_over(plan, captured_at)
    try:
        require_over(plan, parts.captured_at)
    except UsageError:
        # Of answers that were kept before the range was over, none is of use.
        parts.begin_anew(captured_at)


def _is_frozen(folder: Path, plan: FreezePlan) -> bool:
    """Say whether a snapshot is there that was frozen by this plan.

    Raises:
        DataError: One is there whose manifest is damaged.
    """
    if not (folder / MANIFEST_NAME).is_file():
        return False
    sources = load_manifest(folder).sources
    return any(source.options.get("freeze") == plan.fingerprint for source in sources)
