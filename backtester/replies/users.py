"""Who has a reply cache open, so that nothing is deleted under somebody's hands.

Whoever may write to a cache shares a lock on it; whoever wants to delete holds it alone. The kernel
frees both when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from backtester.errors import UsageError


class Membership:
    """Be a user of a cache for as long as this object lives.

    Args:
        lock: Lock file, made where there is none.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # Waits while somebody deletes.
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", -1), -1
        if handle >= 0:
            os.close(handle)

    def alone(self) -> None:
        """Become the only user, for the rest of this object's life; others wait to join.

        Raises:
            UsageError: There are others.
        """
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"the cache {self._lock.parent.parent} is in use by a run: wait for its end; "
                "nothing was deleted"
            ) from error
