"""A memory with a name, which outlives the questions: its journal, and the log for people.

    <reports_dir>/memory/<name>/journal.jsonl   every decision, return and lesson
                                decisions.md    the same as Markdown, for people

The Markdown is never read back; that there is some tells a journal that was emptied from a new one.
Any number of processes may write to one memory, each in whole appends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from backtester.errors import DataError, UsageError
from backtester.runs.journal import Journal, Ledger, Record, read_ledger
from backtester.spellings import shown
from backtester.texts.decision_log import log_entries, write_decision_log

OFF: Final = "off"
DEFAULT_MEMORY: Final = "default"
LOG_NAME: Final = "decisions.md"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def memory_in_force(name: object, scope: str) -> str:
    """Return the name of the memory in force, or ``off``.

    Whoever names a memory wants it, so a name wins over settings that switch memory off.

    Args:
        name: As somebody gave it, or None for none; ``off`` in any spelling is no name.
        scope: Whose lessons a decision may read, as the settings say; ``off`` for none.

    Raises:
        UsageError: A name that could not be a folder's.
    """
    if name is None:
        return OFF if scope == OFF else DEFAULT_MEMORY
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{shown(name)} is no name of a memory: write letters, digits, - and _ (at most 40), "
            "or 'off' for none"
        )
    return OFF if name.lower() == OFF else name


class NamedMemory:
    """Keep what was decided under one name.

    Args:
        name: As `memory_in_force` gives it, and not ``off``.
        reports_dir: Folder of reports.
    """

    def __init__(self, name: str, reports_dir: Path) -> None:
        self.name = name
        self.folder = reports_dir / "memory" / name
        self.path = self.folder / "journal.jsonl"
        self._log = self.folder / LOG_NAME

    def recall(self) -> Ledger:
        """Return all that it holds; a memory that nobody has used holds nothing.

        Raises:
            DataError: Its journal is damaged, cannot be read, or has lost what it held.
        """
        try:
            # Looked at first, for a decision is in the journal before it is in the log.
            had = self._log.exists() and self._log.stat().st_size > 0
            ledger = Ledger()
            if self.path.exists():
                # What cannot be opened is not damaged, so it is told apart first.
                with self.path.open("rb"):
                    pass
                ledger = read_ledger(self.path, advice=self._way_out)
        except OSError as error:
            raise DataError(
                f"memory {self.name!r}: {self.path} cannot be read ({error.strerror}): allow it, "
                "or name another memory with --memory"
            ) from error
        if had and not ledger.cells:
            raise DataError(
                f"memory {self.name!r} has lost its decisions: {self.path} holds none, though "
                f"{LOG_NAME} beside it does; {self._way_out}"
            )
        return ledger

    def require_room(self) -> None:
        """See that it can be written, before something is paid for that it is to keep.

        Raises:
            UsageError: It cannot.
        """
        # What is not there yet is not made either: the question may still be refused.
        place = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise self._unwritable("Permission denied" if place.is_dir() else f"{place} is a file")

    def append(self, records: Sequence[Record]) -> None:
        """Write records as one append that no other process disturbs.

        Raises:
            DataError: The journal is damaged.
            UsageError: It cannot be written.
        """
        if not records:
            return
        with self._held(), closing(Journal.open(self.path, advice=self._way_out)) as journal:
            journal.append(records)

    def write_log(self, *, cap: int | None) -> None:
        """Write the memory as Markdown for people.

        Args:
            cap: Resolved entries that are kept, the newest; None keeps all.
        """
        with self._held():
            kept = self.recall()
            entries = log_entries(kept.cells.values(), kept.returns.values(), kept.lessons.values())
            write_decision_log(entries, self._log, cap=cap)

    @property
    def _way_out(self) -> str:
        return (
            f"bring {self.path.name} of memory {self.name!r} back from a copy, or move "
            f"{self.folder} away to begin with an empty memory (recorded replies stay in the cache)"
        )

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the memory for one write; whoever comes second waits, for it takes milliseconds."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock"):
                yield
        except OSError as error:
            raise self._unwritable(str(error.strerror)) from error

    def _unwritable(self, reason: str) -> UsageError:
        return UsageError(
            f"memory {self.folder} cannot be written ({reason}): allow it, make room, or name "
            "another folder with --reports-dir"
        )
