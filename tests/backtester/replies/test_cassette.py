"""A run's recording travels as one file that says when it is cut, changed or hostile."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from backtester.errors import DataError, UsageError
from backtester.replies import cassette
from backtester.replies.answers import CacheRecord
from backtester.replies.cassette import (
    Head,
    JournalLine,
    Limits,
    Written,
    is_cassette,
    items,
    names_cassette,
    write_cassette,
)
from tests.support.answers import make_answer, make_call
from tests.support.cassettes import canonical, compress, lines_of, sealed, write_lines

MANIFEST = {"run_id": "demo-1", "results_root": "abc"}
JOURNAL = ('0123456789abcdef {"kind":"cell"}', 'fedcba9876543210 {"kind":"return"}')


def answers() -> list[CacheRecord]:
    made = [make_answer(f"answer {word}", call=make_call(word)) for word in ("one", "two", "three")]
    return sorted(made, key=lambda record: record.key)


def written(path: Path, **changes: Any) -> Written:
    fields: dict[str, Any] = {"manifest": MANIFEST, "answers": answers(), "journal": JOURNAL}
    return write_cassette(path, **{**fields, **changes})


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "demo.jsonl.zst"
    written(path)
    return path


def test_a_cassette_holds_manifest_answers_and_journal_in_that_order(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "demo.jsonl.zst"
    done = written(path)
    lines = lines_of(path)

    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["manifest", *["answer"] * 3, *["journal"] * 2, "end"]
    before_the_end = "".join(f"{line}\n" for line in lines[:-1]).encode()
    assert done == Written(
        content=hashlib.sha256(before_the_end).hexdigest(),
        answers=3,
        journal=2,
        size=path.stat().st_size,
        new=True,
    )
    assert list(items(path)) == [
        Head(manifest=MANIFEST),
        *answers(),
        *(JournalLine(text=line) for line in JOURNAL),
    ]
    assert [
        json.dumps(json.loads(x), sort_keys=True, separators=(",", ":")) for x in lines
    ] == lines


def test_the_same_recording_packs_to_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.jsonl.zst"
    written(other)
    assert packed.read_bytes() == other.read_bytes()


def test_a_file_that_holds_something_else_is_replaced_only_if_told_to(packed: Path) -> None:
    before = packed.read_bytes()

    assert written(packed).new is False
    with pytest.raises(UsageError, match="--force replaces it"):
        written(packed, journal=())
    assert packed.read_bytes() == before
    assert written(packed, journal=(), force=True).new is True
    assert packed.read_bytes() != before
    assert [path.name for path in packed.parent.iterdir()] == [packed.name]


def test_a_pack_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def broken() -> Any:
        yield answers()[0]
        raise DataError("gone")

    with pytest.raises(DataError, match="gone"):
        written(tmp_path / "a.jsonl.zst", answers=broken())
    with pytest.raises(UsageError, match="line 3 of the cassette would hold the value of A_KEY"):
        written(tmp_path / "a.jsonl.zst", secrets={"A_KEY": json.loads(secret_of(1))})
    assert list(tmp_path.iterdir()) == []


def secret_of(number: int) -> str:
    return json.dumps(answers()[number].reply.text)


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        written(tmp_path / "file" / "a.jsonl.zst")


def test_a_cassette_is_known_by_its_first_bytes_or_its_name(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("text")
    assert is_cassette(packed)
    assert not is_cassette(tmp_path / "other")
    assert not is_cassette(tmp_path)
    assert not is_cassette(Path("a\0b"))
    assert names_cassette("nowhere.jsonl.zst")
    assert not names_cassette("latest")


# ------------------------------------------------------------------------------ cut and changed


def taken(path: Path, **changes: Any) -> list[Any]:
    return list(items(path, **changes))


def test_a_cassette_that_is_cut_says_so_wherever_it_was_cut(packed: Path) -> None:
    whole = packed.read_bytes()
    for length in range(0, len(whole) - 4, 37):
        packed.write_bytes(whole[:length])
        with pytest.raises(DataError, match="is cut short" if length else "is empty"):
            taken(packed)
    # A whole file of nothing has lost its end too.
    packed.write_bytes(zstandard.compress(b""))
    with pytest.raises(DataError, match="is cut short"):
        taken(packed)
    for lost in range(len(lines_of_bytes(whole, packed))):
        lines = lines_of_bytes(whole, packed)
        del lines[lost]
        write_lines(packed, lines)
        with pytest.raises(DataError):
            taken(packed)


def lines_of_bytes(whole: bytes, path: Path) -> list[str]:
    path.write_bytes(whole)
    return lines_of(path)


Edit = Callable[[list[str]], Sequence[str]]
CHANGED: dict[str, tuple[Edit, str]] = {
    "one letter": (lambda ls: [ls[0].replace("demo-1", "demo-2"), *ls[1:]], "was changed"),
    "no end": (lambda ls: ls[:-1], "cut short"),
    "lines after the end": (lambda ls: [*ls, ls[-2]], "goes on after its end"),
    "two ends": (lambda ls: [*ls, ls[-1]], "goes on after its end"),
    "an end with more": (
        lambda ls: [*ls[:-1], ls[-1].replace('"kind"', '"a":1,"kind"')],
        "its end says otherwise",
    ),
    "no manifest": (lambda ls: sealed(ls[1:]), "no manifest in line 1"),
    "two manifests": (lambda ls: sealed([ls[0], *ls]), "or one elsewhere"),
    "an answer twice": (lambda ls: sealed([*ls[:2], *ls[1:]]), "out of order, or twice"),
    "answers in another order": (lambda ls: sealed([ls[0], ls[2], ls[1], *ls[3:]]), "out of order"),
    "an answer after the journal": (
        lambda ls: sealed([ls[0], *ls[2:6], ls[1]]),
        "out of order",
    ),
    "another format": (
        lambda ls: sealed([ls[0].replace('"format":1', '"format":7'), *ls[1:]]),
        "another format than 1",
    ),
    "a reply that was changed": (
        lambda ls: sealed([line.replace("answer one", "answer two") for line in ls]),
        "its reply was changed",
    ),
    "an unknown kind": (lambda ls: sealed([*ls, '{"kind":"pickle"}']), "a kind that we do not"),
    "a list": (lambda ls: sealed([*ls, "[]"]), "no JSON object"),
    "no JSON": (lambda ls: sealed([*ls, "gASVBAAAAAAAAABLAS4="]), "line 7 is no JSON"),
    "an empty line": (lambda ls: sealed([*ls, ""]), "is no JSON"),
    "a name twice": (
        lambda ls: sealed([*ls, '{"kind":"journal","kind":"journal","line":""}']),
        "not in canonical form",
    ),
    "NaN": (lambda ls: sealed([ls[0].replace('"abc"', "NaN"), *ls[1:]]), "is no JSON"),
    "infinity by digits": (lambda ls: sealed([ls[0].replace('"abc"', "1e999"), *ls[1:]]), "JSON"),
    "a huge integer": (
        lambda ls: sealed([ls[0].replace('"abc"', "9" * 30), *ls[1:]]),
        "not in canonical form",
    ),
    "deep nesting": (
        lambda ls: sealed([ls[0].replace('"abc"', "[" * 300 + "]" * 300), *ls[1:]]),
        "is nested too deep",
    ),
    "bottomless nesting": (
        lambda ls: sealed([ls[0].replace('"abc"', "[" * 100_000 + "]" * 100_000), *ls[1:]]),
        "is no JSON",
    ),
    "half a character": (
        lambda ls: sealed([ls[0].replace('"abc"', '"\\ud800"'), *ls[1:]]),
        "is no JSON",
    ),
    "spaces": (lambda ls: sealed([ls[0].replace(":", ": "), *ls[1:]]), "not in canonical form"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_line_that_we_would_not_write_is_refused(packed: Path, name: str) -> None:
    edit, words = CHANGED[name]
    write_lines(packed, edit(lines_of(packed)))
    with pytest.raises(DataError, match=words) as refused:
        taken(packed)
    assert str(packed) in str(refused.value)
    assert len(str(refused.value)) < 500


ABOUT: dict[str, Any] = {
    "node": [{"a": 1}, None, 5, ["x"]],
    "latency_s": ["1", None, True, [], {}],
    "recorded_at": [5, None, {}],
    "model": [None, 1],
    "format": [True, "1", 1.0, None, 2],
    "key": [None, 5, ["k"]],
    "surplus": ["a field that we do not write"],
}


@pytest.mark.parametrize("field", ABOUT)
def test_an_answer_with_a_field_of_another_form_is_refused(packed: Path, field: str) -> None:
    lines = lines_of(packed)
    for value in ABOUT[field]:
        document = json.loads(lines[1])
        document["about"][field] = value
        write_lines(packed, sealed([lines[0], canonical(document), *lines[2:]]))
        with pytest.raises(DataError, match="line 2 is damaged"):
            taken(packed)


REPLY: dict[str, Any] = {
    "text": [None, 5, ["x"]],
    "tool_calls": ["x", [1], [{"id": 1, "name": "n", "args": "{}"}], {"a": 1}, [{"id": "i"}]],
    "usage": [None, [], {"input_tokens": "5", "output_tokens": 1}, {"a": 1}, {"input_tokens": 1.5}],
    "raw": [None, {}],
    "refusal": [5],
    "finish_reason": [None, 5],
    "surplus": [1],
}


@pytest.mark.parametrize("field", REPLY)
def test_a_reply_with_a_field_of_another_form_is_refused(packed: Path, field: str) -> None:
    lines = lines_of(packed)
    for value in REPLY[field]:
        document = json.loads(lines[1])
        document["reply"][field] = value
        text = canonical(document["reply"])
        document["about"]["reply_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        write_lines(packed, sealed([lines[0], canonical(document), *lines[2:]]))
        with pytest.raises(DataError, match="line 2 is damaged"):
            taken(packed)


# --------------------------------------------------------------------------------------- limits


def test_a_small_file_that_unpacks_to_a_giant_is_refused_early(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(packed)
    padding = canonical({"kind": "journal", "line": "a" * 2**20})
    giant = compress("".join(f"{x}\n" for x in [*lines[:-1], *[padding] * 100]).encode())
    packed.write_bytes(giant)
    seen: list[Any] = []
    with pytest.raises(DataError, match=r"unpacks to more than \d+ bytes"):
        seen.extend(items(packed))
    assert len(seen) < 80

    one_line = compress(b"a" * 2**27)
    packed.write_bytes(one_line)
    with pytest.raises(DataError, match="a line of more than"):
        taken(packed)


def test_each_limit_is_told(packed: Path) -> None:
    limited = {
        "bytes, over": Limits(compressed=10),
        "unpacks to more than": Limits(uncompressed=100),
        "a line of more than": Limits(line=100),
        "more than 3 lines": Limits(lines=3),
        "a journal over 40": Limits(journal=40),
    }
    for words, limits in limited.items():
        with pytest.raises(DataError, match=words):
            taken(packed, limits=limits)


def test_what_nobody_could_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limits in (Limits(line=100), Limits(journal=40)):
        monkeypatch.setattr(cassette, "LIMITS", limits)
        with pytest.raises(UsageError, match="too large for a cassette"):
            written(tmp_path / "a.jsonl.zst")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_cassette_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zst")
    assert not is_cassette(tmp_path / "pipe.zst")
    with pytest.raises(DataError, match="no cassette at"):
        taken(tmp_path / "pipe.zst")


def test_a_window_that_would_fill_memory_is_refused(packed: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with packed.open("wb") as file, compressor.stream_writer(file) as out:
        out.write(b"x" * 100)
        out.flush()
        out.write(b"\n")
    with pytest.raises(DataError, match="cannot be read"):
        taken(packed)


def test_what_is_no_cassette_says_so(packed: Path, tmp_path: Path) -> None:
    packed.write_bytes(b"no zstd at all")
    with pytest.raises(DataError, match="cannot be read"):
        taken(packed)
    write_lines(packed, [])
    with pytest.raises(DataError, match="is cut short"):
        taken(packed)
    for place in (tmp_path / "nowhere", tmp_path, Path("/dev/zero")):
        with pytest.raises(DataError, match="no cassette at"):
            taken(place)


def test_what_follows_the_compressed_data_is_refused(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes() + b"more")
    with pytest.raises(DataError, match="cannot be read"):
        taken(packed)


def test_no_pickle_is_read_or_written() -> None:
    source = Path(cassette.__file__).read_text(encoding="utf-8")
    assert "pickle" not in source
