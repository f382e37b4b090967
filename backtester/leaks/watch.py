"""Notice files that are opened past the view: by Python, and on Linux by anything else.

Python tells an audit hook of each file that it opens; which process did it is then certain. C
libraries (Arrow, DuckDB) tell nobody, so on Linux the kernel is asked through inotify. It does not
say which process opened a file, so an audit counts such a sighting only where it recurs.

Other files that Python reads are noted too: one that was written since the audit began may tell
what a process of another world found.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_IN_OPEN: Final = 0x20
_IN_ISDIR: Final = 0x40000000
_HEAD: Final = struct.Struct("iIII")
_BUFFER: Final = 65536
# Of the interpreter and its packages, and of the system: nothing is remembered there.
_PROGRAM: Final = tuple(
    f"{os.path.realpath(place)}{os.sep}"
    for place in (sys.prefix, sys.base_prefix, "/usr/share", "/proc", "/sys", "/dev")
)
_CODE: Final = (".py", ".pyc", ".so")


@dataclass(frozen=True, kw_only=True)
class Sightings:
    """Name the watched files that were opened.

    Attributes:
        surely: By this process.
        somebody: By it or another one.
        elsewhere: Other files that were there before this process opened them, and that it read.
        fresh: Those of them that had been written since the audit began.
    """

    surely: tuple[str, ...] = ()
    somebody: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()


class FileWatch:
    """Watch the files of some folders; one for the life of a process, for a hook stays.

    Args:
        folders: Folders whose own files are watched.
        since: When the audit began, in nanoseconds, as the file system has it.
    """

    def __init__(self, folders: Sequence[Path], *, since: int = 0) -> None:
        self._folders = {os.path.realpath(folder) for folder in folders}
        self._since = since
        self._seen: dict[str, None] = {}
        # Other files -> when they were written as this process opened them first; None: not yet.
        self._found: dict[str, int | None] = {}
        self._read: dict[str, None] = {}
        self._by_watch: dict[int, str] = {}
        self._handle: int | None = None
        if sys.platform == "linux":
            self._ask_the_kernel()
        sys.addaudithook(self._hear)

    @property
    def hears_everything(self) -> bool:
        """Whether C libraries are seen too."""
        return self._handle is not None

    def sightings(self) -> Sightings:
        """Return what was opened since this was last asked."""
        somebody = dict.fromkeys(self._drain())
        seen, self._seen = tuple(self._seen), {}
        read, self._read = tuple(self._read), {}
        fresh = tuple(path for path in read if (self._found[path] or 0) >= self._since)
        return Sightings(surely=seen, somebody=tuple(somebody), elsewhere=read, fresh=fresh)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "sqlite3.connect"):
            return
        if not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        name = os.fsdecode(arguments[0])
        if event == "sqlite3.connect":
            name = name.removeprefix("file:").partition("?")[0]
        path = Path(os.path.realpath(name))
        if str(path.parent) not in self._folders:
            self._note(str(path), reads=event != "open" or _reads(arguments[2]))
        elif not path.is_dir():
            self._seen[str(path)] = None

    def _note(self, path: str, *, reads: bool) -> None:
        if path.startswith(_PROGRAM) or path.endswith(_CODE):
            return
        if path not in self._found:
            self._found[path] = _written_at(path)
        if reads and self._found[path] is not None:
            self._read[path] = None

    def _ask_the_kernel(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        handle = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if handle < 0:
            return
        self._handle = handle
        for folder in sorted(self._folders):
            watch = library.inotify_add_watch(handle, os.fsencode(folder), _IN_OPEN)
            if watch >= 0:
                self._by_watch[watch] = folder

    def _drain(self) -> list[str]:
        found: list[str] = []
        if self._handle is None:
            return found
        with suppress(BlockingIOError):
            while data := os.read(self._handle, _BUFFER):
                found += self._names(data)
        return found

    def _names(self, data: bytes) -> list[str]:
        found, at = [], 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if name and not mask & _IN_ISDIR and watch in self._by_watch:
                found.append(str(Path(self._by_watch[watch], os.fsdecode(name))))
        return found


def _reads(flags: object) -> bool:
    """Say whether a file that is opened with these flags can tell what was in it."""
    return isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_TRUNC)


def _written_at(path: str) -> int | None:
    """Return when a plain file was written, in nanoseconds; None where there is none."""
    try:
        state = Path(path).stat()
    except (OSError, ValueError):
        return None
    return state.st_mtime_ns if stat.S_ISREG(state.st_mode) else None
