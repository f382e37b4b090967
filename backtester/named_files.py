"""Files that somebody names: opened where they are regular ones, read where their size fits.

A pipe would wait for its other end, a device never ends, and a folder has nothing to read. Whoever
reads a file that a command, a configuration or a manifest names does it here, states how large it
may be, and makes his own error of what is raised: an `OSError` whose ``strerror`` says what it is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

SETTINGS_BYTES: Final = 16 * 2**20
"""Most bytes of what says how to do something: settings, plans, books, manifests."""
TABLE_BYTES: Final = 2 * 2**30
"""Most bytes of rows in one file."""

_KINDS: Final = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a pipe, which is no file: write it into one first",
    stat.S_IFCHR: "it is a device, which is no file",
    stat.S_IFBLK: "it is a device, which is no file",
    stat.S_IFSOCK: "it is a socket, which is no file",
}


class UnfitFile(OSError):
    """Report a name behind which is no regular file, or one that is larger than it may be."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(errno.EINVAL, words, str(path))


@contextmanager
def open_named(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file to read its bytes; nothing else is waited for.

    Raises:
        OSError: As the system says; `UnfitFile` for what is no regular file.
    """
    try:
        # Looked at first, for opening alone can move a device.
        _require_regular(path, path.stat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise UnfitFile(path, "its name holds what no name can") from error
    with os.fdopen(descriptor, "rb") as file:
        _require_regular(path, os.fstat(descriptor))
        yield file


def read_named(path: Path, *, most: int) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: The file.
        most: How many bytes it may have.

    Raises:
        OSError: As the system says; `UnfitFile` for what is no regular file, or is larger.
    """
    with open_named(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitFile(path, f"it is larger than {most >> 20} MB")
        data = file.read(size)
        if file.read(1):
            raise UnfitFile(path, "it grows while it is read")
        return data


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnfitFile(path, _KINDS.get(stat.S_IFMT(found.st_mode), "it is no file"))
