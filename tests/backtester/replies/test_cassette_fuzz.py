"""Whatever a stranger does to a pack: one line, an exit code of ours, and no file out of place."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtester import cli
from backtester.backtest import run
from backtester.packs.packs import pack_run
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import read_ledger
from backtester.runs.root import results_root
from backtester.walk.plan import cache_folder
from tests.support.cassettes import canonical, lines_of, refit_run_id, sealed, write_lines
from tests.support.workspaces import make_workspace

# 4 and 7 are right where a forged pack holds together and leads elsewhere.
EXPECTED = {0, 2, 3, 4, 7}
SCALARS: list[Any] = [
    None, True, False, 0, -1, 2**63, 1.5, -0.0, "", "x", "../../x", "/etc/passwd", "\x1b[2J\x07",
    "9" * 300, "\u202e", "\x00", "2018-01-05", "9999-12-31", "ab" * 32, [], {}, ["x"], {"a": 1},
    [[[[[]]]]], "nan", "Infinity", "-", "outcome:length", "\r\n", "a" * 5000,
]  # fmt: skip


class Place:
    """A small real pack, and folders in which commands try it."""

    def __init__(self, path: Path) -> None:
        workspace = make_workspace(path / "ws")
        result = run(workspace.config(end=date(2018, 1, 12), tickers=("AAA",)))
        self.pack = path / "in" / "pack.jsonl.zst"
        cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
        pack_run(RunFolder(result.folder), cache, self.pack)
        shutil.rmtree(workspace.data / "cache")
        self.lines = lines_of(self.pack)
        self.bytes = self.pack.read_bytes()
        self.path = path
        self.data = workspace.data

    def files(self) -> dict[Path, int]:
        """Return every file outside of what a command may write, with its size."""
        found = [path for path in sorted(self.path.rglob("*")) if path.is_file()]
        kept = self.path / "kept"
        return {path: path.stat().st_size for path in found if not path.is_relative_to(kept)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("fuzz"))


def said(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(list(words))
    return code, out.getvalue(), err.getvalue()


def try_commands(place: Place) -> int:
    """Try every command that reads a pack on the one in place; return what the replay said."""
    before = place.files()
    pack, data = str(place.pack), str(place.data)
    code = 0
    for words in (
        ("cassette", "stats", pack),
        ("cassette", "verify", pack),
        ("cassette", "explain", "0", pack),
        ("replay", pack, "--data-dir", data),
    ):
        code, out, err = said(*words)
        assert code in EXPECTED, (words, code, err)
        assert len(out) + len(err) < 60_000, words
        assert all(char.isprintable() or char == "\n" for char in out + err), words
        last = err.rstrip("\n").split("\n")[-1]
        assert code == 0 or (last.startswith("error: ") and len(last) < 1_500), (words, err)
    assert place.files() == before
    return code


def test_the_pack_that_is_mutated_replays(place: Place) -> None:
    place.pack.write_bytes(place.bytes)
    assert try_commands(place) == 0


# ---------------------------------------------------------------------------------- byte by byte


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_bytes_that_were_changed_are_told(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(place.bytes)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data))
        stop = start + chance.choice((0, 1, 1, 2, 50, 5_000))
        data[start:stop] = chance.randbytes(chance.choice((0, 1, 1, 4, 40)))
    place.pack.write_bytes(bytes(data))
    assert try_commands(place) == (0 if bytes(data) == place.bytes else 3)


# ---------------------------------------------------------------------- forged, and sealed again


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_a_pack_that_was_forged_and_sealed_again_does_no_harm(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    lines = list(place.lines[:-1])
    for _ in range(chance.randint(1, 3)):
        chance.choice(FORGERIES)(lines, chance)
    if chance.random() < 0.8:
        mend_root(lines, place.path / "mended.jsonl")
    write_lines(place.pack, sealed(lines))
    try_commands(place)


Forgery = Callable[[list[str], random.Random], None]


def drop_a_line(lines: list[str], chance: random.Random) -> None:
    if lines:
        del lines[chance.randrange(len(lines))]


def swap_two_lines(lines: list[str], chance: random.Random) -> None:
    if len(lines) > 1:
        one, two = chance.sample(range(len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[one]


def copy_a_line(lines: list[str], chance: random.Random) -> None:
    if lines:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))


def change_a_character(lines: list[str], chance: random.Random) -> None:
    if lines:
        number = chance.randrange(len(lines))
        line = lines[number]
        at = chance.randrange(len(line) + 1)
        lines[number] = line[:at] + chance.choice('{}[]",:0\\\u2028é ') + line[at + 1 :]


def change_a_value(lines: list[str], chance: random.Random) -> None:
    """Change a value anywhere in a line, and mend every hash and checksum that it moves."""
    if not lines:
        return
    number = 0 if chance.random() < 0.4 else chance.randrange(len(lines))
    try:
        document = json.loads(lines[number])
    except ValueError:
        return
    if not isinstance(document, dict):
        return
    if document.get("kind") == "journal" and isinstance(document.get("line"), str):
        document["line"] = changed_journal_line(document["line"], chance)
    else:
        change_inside(document, chance)
        mend(document)
    lines[number] = canonical(document)


def changed_journal_line(line: str, chance: random.Random) -> str:
    try:
        body = json.loads(line[17:])
    except ValueError:
        return line
    change_inside(body, chance)
    text = f'{{"kind":{canonical(body.get("kind"))},"record":{canonical(body.get("record"))}}}'
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text}"


def change_inside(value: Any, chance: random.Random) -> None:
    """Walk to a random place in a value and put something else there."""
    while True:
        names = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not names:
            return
        name = chance.choice(names)
        inner = value[name]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            value = inner
            continue
        if chance.random() < 0.2:
            del value[name]
        elif chance.random() < 0.1 and isinstance(value, dict):
            value["surplus"] = chance.choice(SCALARS)
        else:
            value[name] = chance.choice(SCALARS)
        return


def mend(document: dict[str, Any]) -> None:
    manifest = document.get("manifest")
    if isinstance(manifest, dict):
        refit_run_id(manifest)
    about = document.get("about")
    if isinstance(about, dict) and "reply" in document and "request" in document:
        text = canonical(document["reply"])
        about["reply_sha256"] = hashlib.sha256(text.encode()).hexdigest()
        about["key"] = hashlib.sha256(canonical(document["request"]).encode()).hexdigest()


def sort_answers(lines: list[str], _: random.Random) -> None:
    """Put answers in the order of their keys again, so that a forged one gets further."""
    places = [number for number, line in enumerate(lines) if line.startswith('{"about"')]
    ordered = sorted((lines[number] for number in places), key=key_of)
    for number, line in zip(places, ordered, strict=True):
        lines[number] = line


def key_of(line: str) -> str:
    about = json.loads(line).get("about")
    return str(about.get("key")) if isinstance(about, dict) else ""


def change_a_value_in_order(lines: list[str], chance: random.Random) -> None:
    change_a_value(lines, chance)
    with contextlib.suppress(ValueError):
        sort_answers(lines, chance)


def mend_root(lines: list[str], scratch: Path) -> None:
    """Give the manifest the root that its journal leads to now, where it leads to one."""
    with contextlib.suppress(Exception):
        journal = [json.loads(line)["line"] for line in lines if line.startswith('{"kind":"j')]
        scratch.write_text("".join(f"{line}\n" for line in journal))
        head = json.loads(lines[0])
        head["manifest"]["results_root"] = results_root(read_ledger(scratch))
        lines[0] = canonical(head)
    scratch.unlink(missing_ok=True)


FORGERIES: tuple[Forgery, ...] = (
    drop_a_line,
    swap_two_lines,
    copy_a_line,
    change_a_character,
    *[change_a_value_in_order] * 6,
)
