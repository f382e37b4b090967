"""Notice files that are opened past the view: by Python, and on Linux by anything else.

Python tells an audit hook of each file that it opens; which process did it is then certain. C
libraries (Arrow, DuckDB) tell nobody, so on Linux the kernel is asked through inotify. It does not
say which process opened a file, so an audit counts such a sighting only where it recurs.
"""

from __future__ import annotations

import ctypes
import os
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


@dataclass(frozen=True, kw_only=True)
class Sightings:
    """Name the watched files that were opened.

    Attributes:
        surely: By this process.
        somebody: By it or another one.
    """

    surely: tuple[str, ...] = ()
    somebody: tuple[str, ...] = ()


class FileWatch:
    """Watch the files of some folders; one for the life of a process, for a hook stays.

    Args:
        folders: Folders whose own files are watched.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = {os.path.realpath(folder) for folder in folders}
        self._seen: dict[str, None] = {}
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
        return Sightings(surely=seen, somebody=tuple(somebody))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = Path(os.path.realpath(os.fsdecode(arguments[0])))
        if str(path.parent) in self._folders and not path.is_dir():
            self._seen[str(path)] = None

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
