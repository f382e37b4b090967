"""HTTP exchanges of the OpenAI protocol, recorded by vcrpy in ``cassettes/http``.

``python -m tests.support.http_recordings`` makes all of them anew. What answers is the project's
loopback server with payloads in the real service's form, so a fresh recording has the same bytes.
Of a request only method, path, body and content type are kept: no header that could hold a key, no
version of a client, no address. A replay matches on method, path and body, and records nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vcr
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from tests.support.openai_server import Act, OpenAIServer
from tradingagents_core.llm.factory import create_model
from tradingagents_core.settings import ModelSpec

FOLDER = Path(__file__).parents[2] / "cassettes" / "http"
# Stands in the recordings for the loopback address, whose port is another each time.
ADDRESS = "http://recorded.invalid/v1"
KEY = "sk-TEST-SECRET-123"
MODEL = "stub-1"
SERVED = "stub-1-2026-06-01"

QUESTION: Sequence[BaseMessage] = (
    SystemMessage("Role: Market Analyst\nSimulated date: 2018-06-29"),
    HumanMessage("Compare AAPL and NVDA. Then say what you would do."),
)


class Verdict(BaseModel):
    """A rating and its reason."""

    rating: str = Field(description="Buy, Hold or Sell.")
    reason: str


def bars(symbol: str, last: int) -> str:
    """Return the last daily bars.

    Args:
        symbol: Ticker.
        last: Number of sessions.
    """
    return f"{symbol}: {last} bars"


# ------------------------------------------------------------------------------ what is answered


def _completion(message: Mapping[str, Any], *, finish_reason: str = "stop") -> Act:
    body = {
        "id": "chatcmpl-BqY0aZcTkWm3dUeXvN7RrL5hQ2s9p",
        "object": "chat.completion",
        "created": 1530306000,
        "model": SERVED,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    **message,
                },
                "logprobs": None,
                "finish_reason": finish_reason,
            }
        ],
        "usage": _USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_5d0c7a21e4",
    }
    return Act(body=json.dumps(body, indent=2), headers={"x-request-id": "req_1", "date": "today"})


_USAGE = {
    "prompt_tokens": 141,
    "completion_tokens": 38,
    "total_tokens": 179,
    "prompt_tokens_details": {"cached_tokens": 128, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def _call(number: int, symbol: str) -> dict[str, Any]:
    return {
        "id": f"call_Yk3mB7qTn0{number}XwPz",
        "type": "function",
        "function": {"name": "bars", "arguments": f'{{"symbol": "{symbol}", "last": 2}}'},
    }


_TWO_CALLS = _completion(
    {"tool_calls": [_call(1, "AAPL"), _call(2, "NVDA")]}, finish_reason="tool_calls"
)


def _events(deltas: Iterable[Mapping[str, Any]], *, finish_reason: str) -> Act:
    head = {
        "id": "chatcmpl-BqY0fGh1jKl2mNo3pQr4sTu5vWx6y",
        "object": "chat.completion.chunk",
        "created": 1530306000,
        "model": SERVED,
        "service_tier": "default",
        "system_fingerprint": "fp_5d0c7a21e4",
    }

    def chunk(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], "usage": None}

    chunks = [chunk(delta, None) for delta in deltas]
    chunks.append(chunk({}, finish_reason))
    chunks.append({**head, "choices": [], "usage": _USAGE})
    events = [*(json.dumps(event) for event in chunks), "[DONE]"]
    return Act(
        body="".join(f"data: {event}\n\n" for event in events),
        headers={"content-type": "text/event-stream; charset=utf-8"},
    )


def _call_deltas() -> list[dict[str, Any]]:
    """Cut the two tool calls up as a stream does: name first, then pieces of the arguments."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None, "refusal": None}]
    for index, symbol in enumerate(("AAPL", "NVDA")):
        call = _call(index + 1, symbol)
        arguments = call["function"]["arguments"]
        call["function"]["arguments"] = ""
        deltas.append({"tool_calls": [{"index": index, **call}]})
        for start in range(0, len(arguments), 7):
            piece = {"arguments": arguments[start : start + 7]}
            deltas.append({"tool_calls": [{"index": index, "function": piece}]})
    return deltas


# -------------------------------------------------------------------------------- what is asked


def model_at(url: str, **changes: Any) -> Any:
    """Build the product's own model at an address."""
    fields = {"provider": "openai_compatible", "model": MODEL, "base_url": url, "max_retries": 0}
    return create_model(ModelSpec(**{**fields, **changes}), api_key=KEY)


def use_tools(url: str) -> list[AIMessage]:
    """Ask, call both tools, and hand their answers back."""
    model = model_at(url).bind_tools([bars])
    first = model.invoke(list(QUESTION))
    answers = [
        ToolMessage(bars(**call["args"]), tool_call_id=call["id"]) for call in first.tool_calls
    ]
    return [first, model.invoke([*QUESTION, first, *answers])]


def use_schema(url: str) -> list[AIMessage]:
    """Ask for a typed answer by json_schema."""
    model = model_at(url).bind(response_format=Verdict)
    return [model.invoke(list(QUESTION))]


def use_reasoning(url: str) -> list[AIMessage]:
    """Ask a model that shows its reasoning."""
    return [model_at(url, temperature=0.0).invoke(list(QUESTION))]


def use_stream(url: str) -> list[AIMessage]:
    """Ask for streams by the library's own class; the product's never asks for one on the wire."""
    plain = ChatOpenAI(model=MODEL, base_url=url, api_key=KEY, max_retries=0, stream_usage=True)
    answers = []
    for model in (plain, plain.bind(tools=[convert_to_openai_tool(bars)])):
        chunks = list(model.stream(list(QUESTION)))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        answers.append(whole)
    return answers


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Hold one recording: what is asked, and what the server answers in turn."""

    ask: Callable[[str], list[AIMessage]]
    answers: Sequence[Act]


EXCHANGES: Mapping[str, Exchange] = {
    "tools": Exchange(
        ask=use_tools,
        answers=[_TWO_CALLS, _completion({"content": "Hold AAPL, buy NVDA – in two steps."})],
    ),
    "json_schema": Exchange(
        ask=use_schema,
        answers=[_completion({"content": '{"rating":"Hold","reason":"Nothing new."}'})],
    ),
    "reasoning": Exchange(
        ask=use_reasoning,
        answers=[
            _completion(
                {"content": "Hold.", "reasoning_content": "Two bars say little.\nSo: no change."}
            )
        ],
    ),
    "streaming": Exchange(
        ask=use_stream,
        answers=[
            _events(
                [
                    {"role": "assistant", "content": "", "refusal": None},
                    *({"content": piece} for piece in ("Hold", " AAPL", ", buy", " NVDA", ".")),
                ],
                finish_reason="stop",
            ),
            _events(_call_deltas(), finish_reason="tool_calls"),
        ],
    ),
}


# ----------------------------------------------------------------------------------- the tapes


def _bare_request(request: Any) -> Any:
    kept = {name: text for name, text in request.headers.items() if name.lower() == "content-type"}
    request.headers = kept
    request.uri = ADDRESS + request.path.removeprefix("/v1")
    return request


def _bare_response(response: dict[str, Any]) -> dict[str, Any]:
    response["headers"] = {
        name.lower(): values
        for name, values in response["headers"].items()
        if name.lower() == "content-type"
    }
    return response


def tape(name: str, *, folder: Path = FOLDER, record: bool = False) -> Any:
    """Return the context in which an exchange is replayed, or recorded."""
    return vcr.VCR(
        record_mode="all" if record else "none",
        match_on=("method", "path", "body"),
        before_record_request=_bare_request,
        before_record_response=_bare_response,
        decode_compressed_response=True,
    ).use_cassette(str(folder / f"{name}.yaml"))


def record(folder: Path) -> list[Path]:
    """Record every exchange anew and return the files."""
    made = []
    for name, exchange in EXCHANGES.items():
        file = folder / f"{name}.yaml"
        file.unlink(missing_ok=True)
        with OpenAIServer(*exchange.answers) as server, tape(name, folder=folder, record=True):
            exchange.ask(server.url)
        made.append(file)
    return made


if __name__ == "__main__":
    for path in record(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        sys.stdout.write(f"recorded {path}\n")
