"""What every server of the tests is: a thread on 127.0.0.1 that ends with its context."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Loopback:
    """Serve while the context is open.

    Args:
        server: Bound to a port of loopback.

    Attributes:
        closing: Set when the context ends, for handlers that make a client wait.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.closing = threading.Event()
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True
        )

    @property
    def url(self) -> str:
        """Address for a client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; a request that waits is let go."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
