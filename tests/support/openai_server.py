"""A loopback server that speaks the chat-completions protocol, by a script.

Each request takes the next act of the script; the last act repeats, so a script of one act serves
any number of calls. What arrived is kept in `requests`, headers included.

    with OpenAIServer(text("hello")) as server:
        model = create_model(ModelSpec(provider="openai_compatible", base_url=server.url, ...))
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.loopback import Loopback

MODEL = "stub-1-2026"


@dataclass(frozen=True, kw_only=True)
class Received:
    """Hold one request as it arrived; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Act:
    """Say how one request is answered.

    Attributes:
        status: HTTP status.
        body: JSON value, or ready text or bytes for an answer that is no JSON.
        headers: Further headers.
        delay_s: Seconds to wait before answering; a hang is a long one.
        drop: Close the connection without an answer.
        trickle_s: Begin an answer, and send a blank line each so many seconds for ever.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drop: bool = False
    trickle_s: float = 0.0


Script = Act | Callable[[Received], Act]


def completion(
    content: str | None,
    *,
    tool_calls: list[dict[str, Any]] | None = None,
    finish_reason: str | None = "stop",
    refusal: str | None = None,
    usage: Mapping[str, int] | None = None,
    delay_s: float = 0.0,
) -> Act:
    """Answer with a chat completion in the form of the real service."""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
    if tool_calls is not None:
        message["tool_calls"] = tool_calls
    body = {
        "id": "chatcmpl-Stub0000000000000000000000",
        "object": "chat.completion",
        "created": 1530306000,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        ],
        "usage": dict(usage or {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}),
        "system_fingerprint": "fp_stub",
    }
    return Act(body=body, delay_s=delay_s)


def text(content: str, **options: Any) -> Act:
    """Answer with plain text."""
    return completion(content, **options)


def tools(*calls: tuple[str, Mapping[str, Any] | str], content: str | None = None) -> Act:
    """Answer with tool calls, each (name, arguments); text as arguments is sent as it is."""
    return completion(
        content,
        tool_calls=[
            {
                "id": f"call_{name}{number}xYz",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for number, (name, arguments) in enumerate(calls)
        ],
        finish_reason="tool_calls",
    )


def cut(content: str) -> Act:
    """Answer with text that the length limit cut."""
    return completion(content, finish_reason="length")


def error(status: int, message: str, *, code: str | None = None, **headers: str) -> Act:
    """Answer with an error in the form of the real service; ``retry_after="0"`` is a header."""
    return Act(
        status=status,
        body={"error": {"message": message, "type": "stub", "param": None, "code": code}},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def rate_limited(retry_after_s: str = "0") -> Act:
    """Answer that the rate limit is reached."""
    return error(429, "Rate limit reached", code="rate_limit_exceeded", retry_after=retry_after_s)


def malformed() -> Act:
    """Answer with a body that is no JSON."""
    return Act(body='{"id": "chatcmpl-Stub", "choices": [{"message": {"con')


def hang(seconds: float) -> Act:
    """Answer too late."""
    return completion("too late", delay_s=seconds)


class OpenAIServer(Loopback):
    """Serve a script on loopback while the context is open."""

    def __init__(self, *script: Script) -> None:
        self._script = script
        self._lock = threading.Lock()
        self.requests: list[Received] = []
        self.connections = 0
        super().__init__(_Server(self))

    @property
    def url(self) -> str:
        """Base URL for a client."""
        return f"{super().url}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of the requests so far."""
        return [request.body for request in self.requests]

    def answer(self, received: Received) -> Act:
        """Take the next act for a request."""
        with self._lock:
            step = self._script[min(len(self.requests), len(self._script) - 1)]
            self.requests.append(received)
        act = step(received) if callable(step) else step
        if act.delay_s:
            self.closing.wait(act.delay_s)
        return act

    def connected(self) -> None:
        """Count a connection."""
        with self._lock:
            self.connections += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, stub: OpenAIServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stub = stub


class _Handler(BaseHTTPRequestHandler):
    # Keep-alive, as the real service has it.
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.stub.connected()

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        received = Received(
            path=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=json.loads(self.rfile.read(length)),
        )
        act = self.server.stub.answer(received)
        try:
            if act.drop:
                self.close_connection = True
            elif act.trickle_s:
                self._trickle(act)
            elif received.body.get("stream") and isinstance(act.body, dict) and act.status == 200:
                self._send_events(act)
            else:
                self._send(act)
        except (BrokenPipeError, ConnectionResetError):
            # The client gave up on a late answer, which is what a hang is for.
            self.close_connection = True

    def _send(self, act: Act) -> None:
        ready = act.body if isinstance(act.body, str | bytes) else json.dumps(act.body)
        data = ready if isinstance(ready, bytes) else ready.encode("utf-8", "surrogatepass")
        self.send_response(act.status)
        self.send_header("content-length", str(len(data)))
        for name, value in {"content-type": "application/json", **act.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _trickle(self, act: Act) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        while not self.server.stub.closing.wait(act.trickle_s):
            self.wfile.write(b"\n")
            self.wfile.flush()

    def _send_events(self, act: Act) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in _events(act.body):
            self.wfile.write(f"data: {event}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Keep quiet."""


def _events(body: dict[str, Any]) -> list[str]:
    """Cut a completion into the chunks of a stream."""
    choice = body["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in (message["content"] or "").split(" ") if word]
    for index, call in enumerate(message.get("tool_calls") or []):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    head = {name: body[name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks.append({**head, "choices": [last]})
    chunks.append({**head, "choices": [], "usage": body["usage"]})
    return [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
