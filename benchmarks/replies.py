"""What a recorded answer costs to serve, beside LangChain's own cache on SQLite."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Benchmark, Finding, Outcome, Timing, time_sides

if TYPE_CHECKING:
    import httpx2
    from langchain_core.messages import BaseMessage
    from langchain_openai import ChatOpenAI

    from backtester.replies.cache import ReplyCache
    from backtester.replies.window import CellReplies
    from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI
    from tradingagents_core.protocols import Mode, ModelCall, Reply

STEPS_LEAST = 10_000.0
INVOKE_LEAST = 2_500.0
PEER_LEAST = 5.0
# Short passes, many of them: the fastest is then one that no neighbour on the machine disturbed.
REPEATS = 12
PASSES = 25
URL = "http://127.0.0.1:9/v1"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Hold one request of the pipeline, as it is handed to a model."""

    messages: list[BaseMessage]
    arguments: Mapping[str, Any]
    answer: str


class BareStore:
    """Serve from the cache and write nothing down: what a look-up alone costs."""

    mode: Mode = "replay"
    accept_truncated = False

    def __init__(self, cache: ReplyCache) -> None:
        self._cache = cache

    def look_up(self, call: ModelCall) -> Reply | None:
        """Return what is recorded."""
        return self._cache.reply(call.key, call.request)


def run() -> Outcome:
    """Record the prompts of one decision, then time serving them again in four ways."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The peer warns of its own defaults at every look-up.
        warnings.simplefilter("ignore")
        prompts = _prompts(Path(folder) / "pipeline")
        sides = _sides(prompts, Path(folder))
        timings = time_sides(sides, repeats=REPEATS, units=len(prompts), passes=PASSES)
    steps, noted, ours, theirs = timings
    size = sum(len(str(message.content)) for one in prompts for message in one.messages)
    return Outcome(
        timings=timings,
        findings=(
            Finding(label="prompt, mean", value=size / len(prompts) / 1000, unit="kB"),
            _rate("four steps, one core", steps, STEPS_LEAST),
            _rate("the same, call written down", noted, None),
            _rate("cached invoke, one core", ours, INVOKE_LEAST),
            Finding(
                label="cached invoke v. LangChain's SQLiteCache",
                value=theirs.low / ours.low,
                bound=PEER_LEAST,
                sense=">=",
            ),
        ),
    )


def _rate(label: str, timing: Timing, least: float | None) -> Finding:
    return Finding(label=label, value=1 / timing.low, unit="1/s", bound=least, sense=">=")


def _sides(prompts: Sequence[Prompt], folder: Path) -> dict[str, Callable[[], None]]:
    """Return the four ways of serving, each recorded and shown to make no call."""
    from backtester.replies.cache import ReplyCache

    cache = ReplyCache.open(folder / "cache")
    with _answering(prompts) as recording:
        model = _our_model(recording)
        model.replies = _cell(cache, "record")
        for prompt in prompts:
            model.answer(prompt.messages, **prompt.arguments)
        peer = _peer(folder / "langchain.db", recording)
        for prompt in prompts:
            peer.invoke(prompt.messages, **prompt.arguments)
    # From here on the transport is closed, so a miss would be an error.
    bare, noted, invoked = (_our_model(recording) for _ in range(3))
    bare.replies = BareStore(cache)
    return {
        "payload, key, store read, message": _asking(prompts, bare.answer),
        "the same, call written down": _asking(prompts, noted.answer, cell_of=noted, cache=cache),
        "invoke, recorded": _asking(prompts, invoked.invoke, cell_of=invoked, cache=cache),
        "invoke, LangChain's SQLiteCache": _asking(prompts, peer.invoke),
    }


def _asking(
    prompts: Sequence[Prompt],
    ask: Callable[..., object],
    *,
    cell_of: ReplayingChatOpenAI | None = None,
    cache: ReplyCache | None = None,
) -> Callable[[], None]:
    """Return a pass over all prompts; with a cell, each pass is a cell of its own."""

    def ask_all() -> None:
        if cell_of is not None and cache is not None:
            cell_of.replies = _cell(cache, "replay")
        for prompt in prompts:
            ask(prompt.messages, **prompt.arguments)

    return ask_all


def _prompts(folder: Path) -> tuple[Prompt, ...]:
    """Return what the pipeline asks in one decision, with what the rulebook says to it."""
    from langchain_core.messages import convert_to_messages

    from backtester.replies.cache import ReplyCache
    from backtester.walk.cell import decide_cell
    from benchmarks.floor import set_up

    setting = set_up(folder)
    decide_cell(setting.recording, setting.tasks[0])
    prompts: list[Prompt] = []
    for record in ReplyCache.open(folder / "cache", read_only=True).records():
        body = json.loads(record.request)["body"]
        prompts.append(
            Prompt(
                messages=list(convert_to_messages(body["messages"])),
                arguments={k: body[k] for k in ("tools", "response_format") if k in body},
                answer=_completion(record.reply),
            )
        )
    return tuple(prompts)


def _completion(reply: Reply) -> str:
    """Return a reply as an endpoint of OpenAI's protocol sends it."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.args},
            }
            for call in reply.tool_calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    usage = {"prompt_tokens": 1500, "completion_tokens": 250, "total_tokens": 1750}
    return json.dumps(
        {
            "id": "chatcmpl-benchmark",
            "object": "chat.completion",
            "created": 1530306000,
            "model": "small-1",
            "choices": [choice],
            "usage": usage,
        }
    )


@contextmanager
def _answering(prompts: Sequence[Prompt]) -> Iterator[httpx2.Client]:
    """Answer requests in turn, each prompt's once to us and once to the peer, then no more."""
    import httpx2

    answers = iter([prompt.answer for prompt in prompts] * 2)

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, content=next(answers), headers={"content-type": "application/json"}
        )

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    yield client
    client.close()


def _cell(cache: ReplyCache, mode: Mode) -> CellReplies:
    from backtester.replies.window import CellReplies

    return CellReplies(cache, mode=mode, cell_label="benchmark")


def _our_model(client: httpx2.Client) -> ReplayingChatOpenAI:
    from tradingagents_core.llm.openai_chat import ReplayingChatOpenAI

    return ReplayingChatOpenAI(
        **_settings(client), provider="openai_compatible", endpoint="benchmark"
    )


def _peer(file: Path, client: httpx2.Client) -> ChatOpenAI:
    """Return LangChain's own model with LangChain's own cache on SQLite."""
    from langchain_openai import ChatOpenAI

    try:
        from langchain_community.cache import SQLiteCache
    except ImportError as error:
        raise RuntimeError("the peer is missing: pip install langchain-community") from error
    return ChatOpenAI(**_settings(client), cache=SQLiteCache(database_path=str(file)))


def _settings(client: httpx2.Client) -> dict[str, Any]:
    return {
        "model": "small-1",
        "temperature": 0.0,
        "api_key": "no-key",
        "base_url": URL,
        "http_client": client,
        "max_retries": 0,
        "use_responses_api": False,
    }


REPLIES = Benchmark(
    name="replies",
    question="Is a recorded answer served 10,000 times a second, and 5 times as fast as by a peer?",
    run=run,
)
