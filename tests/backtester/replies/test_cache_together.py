"""Many threads and processes on one cache: none lost, none doubled, whoever dies or evicts."""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import diskcache
import pytest

from backtester.replies.cache import ReplyCache
from backtester.replies.window import CellReplies
from tests.support import openai_server as wire
from tests.support.answers import make_answer, make_call
from tests.support.openai_server import OpenAIServer
from tradingagents_core.errors import ModelOutcome
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.replaying import CURRENT_REPLIES
from tradingagents_core.settings import ModelSpec

PROCESSES, THREADS, EACH = 4, 8, 305
SHARED = 240

# Each thread stores answers of its own, and between them the same shared questions as all others,
# to each of which everybody has another answer. It says which answer it was given.
STORE = """
import json, sys, threading
from pathlib import Path
from backtester.replies.cache import ReplyCache
from tests.support.answers import make_answer, make_call

folder, process, threads, each, shared = Path(sys.argv[1]), *map(int, sys.argv[2:])
cache = ReplyCache.open(folder)
given = {}

def store(thread):
    for number in range(each):
        own = f"{process} {thread} {number}"
        assert cache.add(make_answer(own, call=make_call(own))).reply.text == own
        if number < shared:
            common = make_answer(own, call=make_call(f"shared {number}"))
            given[f"{thread} {number}"] = cache.add(common).reply.text

workers = [threading.Thread(target=store, args=(number,)) for number in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
json.dump(given, sys.stdout)
"""

WRITE_ON = """
import itertools, sys
from pathlib import Path
from backtester.replies.cache import ReplyCache
from tests.support.answers import make_answer, make_call
cache = ReplyCache.open(Path(sys.argv[1]))
for number in itertools.count():
    call = make_call(f"{sys.argv[2]} {number}")
    cache.add(make_answer(f"answer {number} " * 500, call=call))
    print(call.key, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start Python in another process, as another run would."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def test_eight_threads_in_each_of_four_processes_store_ten_thousand_answers(folder: Path) -> None:
    workers = [started(STORE, folder, p, THREADS, EACH, SHARED) for p in range(PROCESSES)]
    given = [json.loads(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * PROCESSES

    owners = itertools.product(range(PROCESSES), range(THREADS), range(EACH))
    expected = {make_call(f"{p} {t} {n}").key for p, t, n in owners}
    shared = {number: make_call(f"shared {number}").key for number in range(SHARED)}
    cache = ReplyCache.open(folder, read_only=True)
    keys = cache.keys()
    assert len(keys) == PROCESSES * THREADS * EACH + SHARED == 10_000
    assert set(keys) == expected | set(shared.values())
    for number, key in shared.items():
        stored = cache.get(key)
        assert stored is not None
        told = {of_process[f"{t} {number}"] for of_process in given for t in range(THREADS)}
        assert told == {stored.reply.text}, "everybody goes on with the one that was stored"


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_process_killed_while_it_writes_loses_at_most_its_last_record(
    folder: Path, count: int
) -> None:
    ReplyCache.open(folder).close()
    killed, other = started(WRITE_ON, folder, "a"), started(WRITE_ON, folder, "b")
    assert killed.stdout is not None
    assert other.stdout is not None
    told = [killed.stdout.readline().strip() for _ in range(count)]
    killed.send_signal(signal.SIGKILL)
    told += killed.communicate()[0].split()
    beside = [other.stdout.readline().strip() for _ in range(count)]
    other.send_signal(signal.SIGKILL)
    beside += other.communicate()[0].split()

    cache = ReplyCache.open(folder)
    assert cache.verify() == ()
    stored = set(cache.keys())
    assert stored >= {*told, *beside}, "what was said to be stored is there"
    assert len(stored) <= len(told) + len(beside) + 2
    assert cache.add(make_answer("after", call=make_call("after"))).reply.text == "after"


# ------------------------------------------------------------------------------- other openers


def fill(stock: Any) -> None:
    for number in range(50):
        stock.set(f"{number:064d}", "x" * 1000)


EVICTIONS: dict[str, Callable[[Any], object]] = {
    "a set that culls": fill,
    "cull": lambda stock: stock.cull(),
    "clear": lambda stock: stock.clear(),
    "delete": lambda stock: stock.delete(make_answer().key),
    "pop": lambda stock: stock.pop(make_answer().key),
}


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used"])
@pytest.mark.parametrize("how", EVICTIONS)
def test_another_opener_with_other_settings_cannot_evict(
    folder: Path, how: str, policy: str
) -> None:
    ours = ReplyCache.open(folder)
    records = [make_answer(f"{n}", call=make_call(f"{n}")) for n in range(20)]
    for record in (*records, make_answer()):
        ours.add(record)
    stock = diskcache.Cache(
        str(folder / "answers"), size_limit=1, cull_limit=100, eviction_policy=policy
    )
    with pytest.raises(sqlite3.IntegrityError, match="never evicted"):
        EVICTIONS[how](stock)
    stock.expire()
    stock.evict("any tag")
    stock.close()
    later = ReplyCache.open(folder)
    for cache in (ours, later):
        for record in records:
            assert cache.get(record.key) == record
    # Our own writes go on, of those that were open meanwhile and of those that come after.
    ours.add(make_answer("during", call=make_call("during")))
    later.add(make_answer("after", call=make_call("after")))
    assert {make_call("during").key, make_call("after").key} < set(later.keys())


def test_what_is_discarded_on_purpose_goes_and_nothing_else(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    kept, gone = make_answer(), make_answer("x", call=make_call("x"))
    cache.add(kept)
    cache.add(gone)
    assert cache.discard(gone.key) is True
    assert cache.keys() == (kept.key,)


def test_a_cache_of_before_is_kept_from_eviction_once_it_was_opened(folder: Path) -> None:
    ReplyCache.open(folder).add(make_answer())
    with sqlite3.connect(folder / "answers" / "cache.db") as database:
        database.execute("DROP TRIGGER answers_stay")
    database.close()
    ReplyCache.open(folder).close()
    stock = diskcache.Cache(str(folder / "answers"))
    with pytest.raises(sqlite3.IntegrityError, match="never evicted"):
        stock.clear()


# -------------------------------------------------------------------------- what may be an answer


def model_at(server: OpenAIServer, *, max_retries: int) -> Any:
    return create_model(
        ModelSpec(
            provider="openai_compatible",
            model="small-1",
            base_url=server.url,
            max_retries=max_retries,
        ),
        api_key="no-key",
    )


def test_of_a_rate_limit_a_cut_and_a_good_reply_only_the_good_one_is_stored(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    store = CellReplies(cache, mode="record", cell_label="FB|2018-06-29|0")
    with OpenAIServer(wire.rate_limited(), wire.cut("It was go"), wire.text("Good.")) as server:
        model = model_at(server, max_retries=0)
        model.replies = store
        for kind in ("transport", "length"):
            with pytest.raises(ModelOutcome, match=kind):
                model.invoke("hi")
            assert len(cache) == 0
        assert model.invoke("hi").content == "Good."
        assert model.invoke("hi").content == "Good."
    assert len(server.requests) == 3
    assert [record.reply.text for record in cache.records()] == ["Good."]


def test_twenty_threads_with_one_question_leave_one_row_and_raise_nothing(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    ready = threading.Barrier(20)
    with OpenAIServer(wire.rate_limited(), wire.text("Good.", delay_s=0.1)) as server:
        model = model_at(server, max_retries=2)

        def ask(number: int) -> str:
            CURRENT_REPLIES.set(CellReplies(cache, mode="record", cell_label=f"cell {number}"))
            ready.wait()
            return str(model.invoke("hi").content)

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(ask, range(20))) == ["Good."] * 20
    assert len(server.requests) == 2, "one that was refused, one that was answered"
    assert len(cache) == 1
