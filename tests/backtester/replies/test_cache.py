"""The store of answers keeps text only, loses nothing, and says what is wrong with a folder."""

from __future__ import annotations

import json
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import diskcache
import pytest

from backtester.errors import DataError, UsageError
from backtester.replies.answers import record_of, record_text, reply_hash
from backtester.replies.cache import CACHE_FORMAT, ReplyCache
from backtester.replies.database import sound
from tests.support.answers import make_answer, make_call
from tradingagents_core.llm.keys import sha256_hex
from tradingagents_core.protocols import Reply, ToolCall, Usage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def database(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "answers" / "cache.db", isolation_level=None)


def rewrite(folder: Path, key: str, text: str) -> None:
    """Change a stored record behind the cache's back."""
    with database(folder) as connection:
        changed = connection.execute("UPDATE Cache SET value = ? WHERE key = ?", (text, key))
        assert changed.rowcount == 1
    connection.close()


# --------------------------------------------------------------------------------- a round trip


def test_a_record_comes_back_as_it_was_from_another_opening(folder: Path) -> None:
    reply = Reply(
        text='Größe "✓"\n\u2028\x00',
        tool_calls=(ToolCall(id="call_1", name="f", args='{"x":1}'),),
        finish_reason="tool_calls",
        usage=Usage(input_tokens=1, output_tokens=None),
        model="m",
        refusal=None,
        raw='{\n "choices": []\n}',
    )
    record = make_answer(reply=reply)
    assert ReplyCache.open(folder).add(record) == record
    assert ReplyCache.open(folder).get(record.key) == record
    assert ReplyCache.open(folder).keys() == (record.key,)


def test_a_large_answer_stays_in_the_database_and_not_in_a_file_that_can_go_missing(
    folder: Path,
) -> None:
    record = make_answer("word " * 400_000)
    ReplyCache.open(folder).add(record)
    assert ReplyCache.open(folder).get(record.key) == record
    assert list(folder.rglob("*.val")) == []


def test_a_record_is_three_lines_of_json_that_can_be_checked_without_this_code(
    folder: Path,
) -> None:
    record = make_answer()
    ReplyCache.open(folder).add(record)
    row = database(folder).execute("SELECT key, raw, value FROM Cache").fetchone()
    about, reply, request = row[2].split("\n")
    assert (row[0], row[1]) == (record.key, 1)
    assert sha256_hex(request) == record.key
    assert json.loads(about)["reply_sha256"] == sha256_hex(reply)
    assert json.loads(reply)["text"] == "Buy."


def test_an_unknown_key_is_none(folder: Path) -> None:
    assert ReplyCache.open(folder).get("0" * 64) is None


def test_the_first_answer_under_a_key_stays(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    first, second = make_answer("Buy."), make_answer("Sell.")
    assert cache.add(first).reply.text == "Buy."
    assert cache.add(second).reply.text == "Buy."
    assert len(cache) == 1


def test_twenty_threads_that_store_one_key_leave_one_row(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    ready = threading.Barrier(20)

    def store(number: int) -> str:
        ready.wait()
        return cache.add(make_answer(f"answer {number}")).reply.text

    with ThreadPoolExecutor(20) as pool:
        texts = set(pool.map(store, range(20)))
    assert len(texts) == 1
    assert len(cache) == 1


def test_a_record_whose_request_leads_elsewhere_is_not_stored(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    with pytest.raises(DataError, match="leads to another key"):
        cache.add(make_answer(key="0" * 64))
    loose = '{"b": 1, "a": 2}'
    with pytest.raises(DataError, match="not in canonical form"):
        cache.add(make_answer(request=loose, key=sha256_hex(loose)))
    assert len(cache) == 0


def test_nothing_is_evicted_or_expires_and_the_settings_hold_for_later_openers(
    folder: Path,
) -> None:
    ReplyCache.open(folder).add(make_answer())
    settings = dict(database(folder).execute("SELECT key, value FROM Settings").fetchall())
    assert settings["eviction_policy"] == "none"
    assert settings["cull_limit"] == 0
    assert settings["size_limit"] == 2**40
    assert database(folder).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database(folder).execute("SELECT expire_time FROM Cache").fetchall() == [(None,)]


def test_a_cache_travels_to_another_process_as_its_folder(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(make_answer().key) == make_answer()
    assert b"Buy." not in pickle.dumps(cache)


def test_a_discarded_answer_can_be_recorded_again(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    record = cache.add(make_answer("Buy."))
    assert cache.discard(record.key) is True
    assert cache.discard(record.key) is False
    assert cache.add(make_answer("Sell.")).reply.text == "Sell."


# ---------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace("Buy.", "Sell"), "its reply was changed"),
        (lambda text: text[: text.index("\n") + 20], "it is cut short"),
        (lambda text: "", "it is cut short"),
        (lambda text: text.replace('"format":1', '"format":9', 1), "it has format 9"),
        (lambda text: "[]" + text[text.index("\n") :], "another form"),
        (lambda text: "{" + text, "it is no JSON"),
    ],
)
def test_a_damaged_record_is_named_and_never_a_miss_or_another_answer(
    folder: Path, damage, words: str
) -> None:
    record = ReplyCache.open(folder).add(make_answer())
    rewrite(folder, record.key, damage(record_text(record)))
    cache = ReplyCache.open(folder)
    with pytest.raises(DataError, match=words) as damaged:
        cache.get(record.key)
    assert record.key in str(damaged.value)
    assert "unpack a cassette" in str(damaged.value)
    (problem,) = cache.verify()
    assert problem.key == record.key


def test_a_request_that_was_changed_leads_to_another_key_and_is_found(folder: Path) -> None:
    record = ReplyCache.open(folder).add(make_answer())
    rewrite(folder, record.key, record_text(record).replace("Rate FB", "Rate GM"))
    (problem,) = ReplyCache.open(folder).verify()
    assert problem.key == record.key
    assert "its request leads to another key" in str(problem)


def test_an_answer_filed_under_another_key_is_damage(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    mine, other = cache.add(make_answer()), cache.add(make_answer(call=make_call("Rate AAPL.")))
    rewrite(folder, mine.key, record_text(other))
    with pytest.raises(DataError, match=f"its key is {other.key}"):
        cache.get(mine.key)


class Bomb:
    """Leave a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_a_pickle_in_the_store_is_refused_and_not_loaded(folder: Path, tmp_path: Path) -> None:
    cache = ReplyCache.open(folder)
    stock = diskcache.Cache(str(folder / "answers"))
    mark = tmp_path / "exploded"
    stock["a" * 64] = Bomb(mark)
    stock[("a", "tuple")] = "text"
    with pytest.raises(DataError, match="no text: not written by us"):
        cache.get("a" * 64)
    with pytest.raises(DataError, match="no text: not written by us"):
        cache.keys()
    assert not mark.exists()


def test_bytes_numbers_and_files_are_no_records(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    stock = diskcache.Cache(str(folder / "answers"), disk_min_file_size=10)
    stock["a" * 64] = b"bytes"
    stock["b" * 64] = 7
    stock["c" * 64] = "a text long enough for a file of its own"
    for key in ("a" * 64, "b" * 64, "c" * 64):
        with pytest.raises(DataError, match="no text"):
            cache.get(key)


def test_the_disk_takes_no_object_to_pickle(folder: Path) -> None:
    store = ReplyCache.open(folder)._store
    with pytest.raises(TypeError, match="only text is stored, not dict"):
        store["key"] = {"a": 1}
    with pytest.raises(TypeError, match="only text is stored, not tuple"):
        store[("key",)] = "text"


def test_a_folder_of_something_else_is_not_touched(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.docx").write_text("mine")
    with pytest.raises(DataError, match=r"thesis\.docx"):
        ReplyCache.open(folder)
    assert not (folder / "answers").exists()


def test_a_cache_of_another_format_says_which(folder: Path) -> None:
    ReplyCache.open(folder)
    marker = folder / "format.json"
    marker.write_text(marker.read_text().replace(str(CACHE_FORMAT), "99"))
    with pytest.raises(DataError, match="99"):
        ReplyCache.open(folder)


def test_a_cache_made_by_the_stock_library_is_not_taken_for_ours(folder: Path) -> None:
    diskcache.Cache(str(folder))["key"] = "value"
    with pytest.raises(DataError, match=r"no format\.json"):
        ReplyCache.open(folder)


def test_a_database_that_is_no_database_is_named(folder: Path) -> None:
    ReplyCache.open(folder).close()
    (folder / "answers" / "cache.db").write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(DataError, match="cannot be used"):
        ReplyCache.open(folder)


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="choose another data_dir"):
        ReplyCache.open(tmp_path / "file" / "cache")


def test_a_variable_in_the_path_is_refused_since_it_would_be_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="names a variable"):
        ReplyCache.open(tmp_path / "$ELSEWHERE")
    assert list(tmp_path.iterdir()) == []


def test_a_marker_with_a_database_that_lost_its_content_is_damage_and_no_new_cache(
    folder: Path,
) -> None:
    cache = ReplyCache.open(folder)
    for number in range(20):
        cache.add(make_answer("word " * 1000, call=make_call(str(number))))
    cache.close()
    file = folder / "answers" / "cache.db"
    whole = file.read_bytes()
    for lost, words in [
        (whole[: len(whole) // 2], "is cut"),
        (whole[:-4096], "is cut"),
        (whole[:50], "is cut"),
        (b"", "is empty"),
        (None, "is missing"),
    ]:
        file.unlink(missing_ok=True)
        if lost is not None:
            file.write_bytes(lost)
        for read_only in (True, False):
            with pytest.raises(DataError, match=words) as damaged:
                ReplyCache.open(folder, read_only=read_only)
            assert "record again or unpack a cassette" in str(damaged.value)
    file.write_bytes(whole)
    assert len(ReplyCache.open(folder)) == 20


def test_a_database_of_something_else_is_not_filled_with_answers(folder: Path) -> None:
    ReplyCache.open(folder).close()
    file = folder / "answers" / "cache.db"
    file.unlink()
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE songs (title)")
    other.close()
    with pytest.raises(DataError, match="no database of ours"):
        ReplyCache.open(folder)


def test_a_cache_whose_making_was_cut_off_is_made_anew(folder: Path) -> None:
    ReplyCache.open(folder).close()
    (folder / "format.json").unlink()
    (folder / "answers" / "cache.db").write_bytes(b"")
    assert len(ReplyCache.open(folder, read_only=True)) == 0
    cache = ReplyCache.open(folder)
    assert cache.add(make_answer()).reply.text == "Buy."
    assert (folder / "format.json").is_file()


def test_a_full_disk_says_so_and_what_was_recorded_is_whole(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    (pages,) = cache._writable._sql("PRAGMA page_count").fetchone()
    cache._writable._sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UsageError, match=r"is full.*free space and run the same command again"):
        cache.add(make_answer("word " * 50_000, call=make_call("another")))
    assert cache.get(make_answer().key) == make_answer()
    assert cache.verify() == ()


def fail_and_fail_again(folder: Path, code: int, second: Exception) -> None:
    """Fail as the library does: what undoes a failed write fails too, and is what is raised."""
    first = sqlite3.OperationalError("said by the database")
    first.sqlite_errorcode = code
    second.__context__ = first
    with sound(folder):
        raise second


@pytest.mark.parametrize(
    ("code", "free", "kind", "words"),
    [
        (sqlite3.SQLITE_FULL, 2**40, UsageError, "is full"),
        (sqlite3.SQLITE_IOERR_WRITE, 0, UsageError, "is full"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, 0, UsageError, "is full"),
        (sqlite3.SQLITE_IOERR_WRITE, 2**40, DataError, "damaged"),
        (sqlite3.SQLITE_READONLY, 0, UsageError, "cannot be written"),
        (sqlite3.SQLITE_BUSY, 0, DataError, "stayed locked"),
        (sqlite3.SQLITE_CANTOPEN, 2**40, DataError, "cannot be opened"),
        (sqlite3.SQLITE_CORRUPT, 0, DataError, "damaged"),
    ],
)
def test_what_the_database_reports_is_told_by_its_first_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, free: int, kind: type, words: str
) -> None:
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: SimpleNamespace(total=2**40, used=0, free=free)
    )
    with pytest.raises(kind, match=words):
        fail_and_fail_again(folder, code, sqlite3.OperationalError("no transaction is active"))


@pytest.mark.parametrize(
    ("code", "words"), [(sqlite3.SQLITE_FULL, "is full"), (sqlite3.SQLITE_BUSY, "stayed locked")]
)
def test_a_write_that_cannot_begin_is_told_by_its_reason(
    folder: Path, code: int, words: str
) -> None:
    with pytest.raises((UsageError, DataError), match=words):
        fail_and_fail_again(folder, code, diskcache.Timeout())


def test_a_lock_that_cannot_be_made_is_a_usage_error(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    for lock in sorted((folder / "flights").iterdir()):
        lock.unlink()
    (folder / "flights").rmdir()
    (folder / "flights").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be used"), cache.flight("abc"):
        pass


# ----------------------------------------------------------------------------------- reading only


def traces(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every file and folder with its size and time of change."""
    found = [folder, *folder.rglob("*")]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_reading_leaves_no_trace(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    cache.close()
    before = traces(folder)
    reader = ReplyCache.open(folder, read_only=True)
    assert reader.get(make_answer().key) == make_answer()
    assert reader.get("0" * 64) is None
    assert (reader.keys(), len(reader)) == ((make_answer().key,), 1)
    assert reader.verify() == ()
    assert reader.nearest("Trader", make_call("another").request) is not None
    with reader.flight("abc"):
        assert traces(folder) == before
    with pytest.raises(UsageError, match="read-only"):
        reader.add(make_answer(call=make_call("another")))
    with pytest.raises(UsageError, match="read-only"):
        reader.discard(make_answer().key)
    reader.close()
    assert traces(folder) == before


def test_a_folder_that_is_not_there_is_an_empty_cache_to_a_reader(folder: Path) -> None:
    reader = ReplyCache.open(folder, read_only=True)
    assert (reader.get("0" * 64), reader.keys(), len(reader)) == (None, (), 0)
    assert reader.verify() == ()
    assert reader.nearest("Trader", make_call().request) is None
    reader.close()
    assert not folder.exists()
    folder.mkdir()
    assert len(ReplyCache.open(folder, read_only=True)) == 0
    (folder / "thesis.docx").write_text("mine")
    with pytest.raises(DataError, match=r"thesis\.docx"):
        ReplyCache.open(folder, read_only=True)


def test_a_reader_sees_what_a_writer_stores_meanwhile(folder: Path) -> None:
    calls = [make_call(str(number)) for number in range(6)]
    ReplyCache.open(folder).close()
    reader = ReplyCache.open(folder, read_only=True)
    assert reader.get(calls[0].key) is None
    for call in calls[:3]:
        writer = ReplyCache.open(folder)
        writer.add(make_answer(call=call))
        assert reader.get(call.key) is not None
        writer.close()
        assert reader.get(call.key) is not None
    writer = ReplyCache.open(folder)
    for call in calls[3:]:
        writer.add(make_answer("word " * 100_000, call=call))
        assert reader.get(call.key) is not None
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda call: reader.get(call.key), calls))


def test_a_reader_refuses_what_is_no_text(folder: Path, tmp_path: Path) -> None:
    ReplyCache.open(folder).close()
    mark = tmp_path / "exploded"
    stock = diskcache.Cache(str(folder / "answers"))
    stock["a" * 64] = Bomb(mark)
    stock[("a", "tuple")] = "text"
    reader = ReplyCache.open(folder, read_only=True)
    with pytest.raises(DataError, match="no text: not written by us"):
        reader.get("a" * 64)
    with pytest.raises(DataError, match="no text: not written by us"):
        reader.keys()
    assert not mark.exists()


def test_a_reader_travels_to_another_process_as_a_reader(folder: Path) -> None:
    ReplyCache.open(folder).add(make_answer())
    copy = pickle.loads(pickle.dumps(ReplyCache.open(folder, read_only=True)))
    assert copy.get(make_answer().key) == make_answer()
    with pytest.raises(UsageError, match="read-only"):
        copy.add(make_answer(call=make_call("another")))


# ------------------------------------------------------------------------------ many processes


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start Python in another process, as another run would."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )


OPEN_AND_ADD = """
import sys
from pathlib import Path
from backtester.replies.cache import ReplyCache
from tests.support.answers import make_answer, make_call
cache = ReplyCache.open(Path(sys.argv[1]))
cache.add(make_answer("shared"))
cache.add(make_answer("own", call=make_call(f"prompt {sys.argv[2]}")))
"""

HOLD = """
import sys, time
from pathlib import Path
from backtester.replies.cache import ReplyCache
with ReplyCache.open(Path(sys.argv[1])).flight(sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_processes_that_start_at_once_are_not_locked_out(folder: Path) -> None:
    workers = [started(OPEN_AND_ADD, str(folder), str(number)) for number in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    for worker in workers:
        worker.communicate()
    assert len(ReplyCache.open(folder)) == 5


def test_a_flight_is_freed_when_its_holder_is_killed(folder: Path) -> None:
    cache, key = ReplyCache.open(folder), make_call().key
    holder = started(HOLD, str(folder), key)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    begun = time.perf_counter()
    with cache.flight(key):
        pass
    assert time.perf_counter() - begun < 5


def test_one_flight_a_key_is_held_among_threads(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    inside = 0
    most = 0

    def fly(_: int) -> None:
        nonlocal inside, most
        with cache.flight("abc"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.001)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fly, range(16)))
    assert most == 1


# ------------------------------------------------------------------------------------ the nearest


def test_the_nearest_request_of_the_same_node_is_shown_with_what_differs(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer(call=make_call("Rate FB.\nThe close is 194.32.")))
    cache.add(make_answer(call=make_call("Tell me a joke about cats.")))
    cache.add(make_answer(call=make_call("Rate FB.\nThe close is 194.33.", node="Bull Researcher")))
    nearest = cache.nearest("Trader", make_call("Rate FB.\nThe close is 194.33.").request)
    assert nearest is not None
    assert nearest.record.key == make_call("Rate FB.\nThe close is 194.32.").key
    assert "-  The close is 194.32." in nearest.diff
    assert "+  The close is 194.33." in nearest.diff
    assert "joke" not in nearest.diff


def test_a_node_without_a_recording_has_no_nearest(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    assert cache.nearest("Bear Researcher", make_call().request) is None


def test_a_damaged_record_does_not_hide_the_nearest(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer(call=make_call("Rate FB.")))
    broken = cache.add(make_answer(call=make_call("Rate GM.")))
    rewrite(folder, broken.key, "cut")
    nearest = cache.nearest("Trader", make_call("Rate GM!").request)
    assert nearest is not None
    assert nearest.record.key == make_call("Rate FB.").key


def test_another_trial_or_setting_shows_in_the_difference(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    trial = cache.nearest("Trader", make_call(trial=1).request)
    warmer = cache.nearest("Trader", make_call(temperature=0.7).request)
    assert trial is not None
    assert warmer is not None
    assert "-trial: 0\n+trial: 1" in trial.diff
    assert "+temperature: 0.7" in warmer.diff


def test_a_difference_late_in_a_long_line_is_shown_and_a_long_one_is_cut(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer(call=make_call("x" * 5000 + "OLD" + "y" * 5000)))
    nearest = cache.nearest("Trader", make_call("x" * 5000 + "NEW" + "y" * 5000).request)
    assert nearest is not None
    assert "OLD" in nearest.diff
    assert "NEW" in nearest.diff
    assert max(len(line) for line in nearest.diff.split("\n")) < 200
    many = cache.nearest("Trader", make_call("\n".join(map(str, range(500)))).request)
    assert many is not None
    assert many.diff.split("\n")[-1].endswith("more lines")


def test_a_prompt_cannot_steer_the_terminal_that_prints_the_difference(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    cache.add(make_answer())
    nearest = cache.nearest("Trader", make_call("\x1b[2J\x07gone").request)
    assert nearest is not None
    assert "\x1b" not in nearest.diff
    assert "\\x1b[2J\\x07gone" in nearest.diff


# -------------------------------------------------------------------------------------- hashes


def test_the_reply_hash_is_over_what_a_caller_sees() -> None:
    reply = Reply(
        text="Buy.", tool_calls=(ToolCall(id="call_9", name="f", args='{"x":1}'),), raw="a"
    )
    other_id = Reply(
        text="Buy.", tool_calls=(ToolCall(id="call_1", name="f", args='{"x":1}'),), raw="b"
    )
    assert reply_hash(reply) == reply_hash(other_id)
    assert reply_hash(reply) == sha256_hex('["Buy.",[["f","{\\"x\\":1}"]],"stop"]')
    assert reply_hash(reply) != reply_hash(Reply(text="Buy."))


def test_reasoning_is_in_the_record_and_counts_as_seen() -> None:
    plain = make_answer()
    thought = make_answer(reply=replace(plain.reply, reasoning="Cheap.", opaque="[1]"))
    assert record_of(thought.key, record_text(thought)) == thought
    assert reply_hash(thought.reply) == sha256_hex('["Buy.",[],"stop","Cheap.","[1]"]')
    assert reply_hash(plain.reply) == sha256_hex('["Buy.",[],"stop"]')


def test_a_record_of_before_there_was_reasoning_reads_and_is_written_as_it_was() -> None:
    text = record_text(make_answer())
    assert "reasoning" not in text
    assert "opaque" not in text
    assert record_of(make_answer().key, text).reply.reasoning is None


def test_the_short_read_of_a_reply_refuses_what_the_long_one_refuses(folder: Path) -> None:
    cache = ReplyCache.open(folder)
    record = cache.add(make_answer())
    assert cache.reply(record.key, record.request) == record.reply
    assert cache.reply("f" * 64, record.request) is None
    with pytest.raises(DataError, match="belongs to another request"):
        cache.reply(record.key, record.request[:-1] + " }")
    with pytest.raises(DataError, match="belongs to another request"):
        cache.reply(record.key, record.request[1:])
    with pytest.raises(DataError, match="belongs to another request"):
        cache.reply(record.key, "x" + record.request)
    text = record_text(record)
    for damaged, words in (
        (text.replace("Buy.", "Sell"), "its reply was changed"),
        (text[len(text) // 2 :], "lacks a field|no JSON|cut short"),
        (record.request, "cut short"),
        ("\n" + record.request, "no JSON"),
        ("", "cut short"),
        (text.replace('"format":1', '"format":9', 1), "it has format 9"),
        (text.replace(record.key, "0" * 64, 1), "its key is 000"),
    ):
        rewrite(folder, record.key, damaged)
        with pytest.raises(DataError, match=words):
            cache.reply(record.key, record.request)


def test_a_record_reads_back_from_its_own_text() -> None:
    record = make_answer()
    assert record_of(record.key, record_text(record)) == record
