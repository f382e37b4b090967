"""Every command that takes a file refuses what is none, in one line and by one rule of exit codes.

What says how something is done (settings, a plan, a book, a script, a manifest to repeat) is 2,
and what holds data (prices, decisions, packed runs, snapshots) is 3: missing, no regular file, too
large or damaged, it is the same code.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from backtester import cli
from tests.support.workspaces import make_workspace

RUN = (
    *("--snapshot", "small", "--benchmark", "^GSPC", "--horizon", "3", "--tickers", "AAA"),
    *("--start", "2018-01-02", "--end", "2018-01-12"),
)
FREEZE = (
    *("freeze", "--quiet", "--name", "mine", "--symbols", "AAA", "--start", "2018-03-01"),
    *("--end", "2018-03-05", "--warmup", "0", "--vendor", "files"),
)
CSV = "symbol,date,open,high,low,close,volume\nAAA,2018-03-01,10,12,9,11,100\n"
BARS = ("--option", "files.bars.path=good.csv", "--option", "files.bars.default.currency=USD")

SETTINGS = {
    "plan FILE": ("plan", "{}.toml"),
    "run FILE": ("run", "{}.toml"),
    "analyze --config": ("analyze", "AAA", "2018-01-05", "--config", "{}.toml"),
    "run --from": ("run", "--from", "{}.json"),
    "plan --from": ("plan", "--from", "{}.json"),
    "plan --portfolio": ("plan", *RUN, "--portfolio", "{}.json"),
    "plan script": ("plan", *RUN, "--provider", "scripted", "--set", "script={}.toml"),
    "plan models_file": ("plan", *RUN, "--set", "models_file={}.toml"),
    "models --models-file": ("models", "--models-file", "{}.toml"),
    "freeze FILE": ("freeze", "{}.toml"),
    "freeze --check-vendor FILE": ("freeze", "{}.toml", "--check-vendor", "files"),
}
DATA = {
    "freeze prices csv": (*FREEZE, "--option", "files.bars.path={}.csv"),
    "freeze prices parquet": (*FREEZE, "--option", "files.bars.path={}.parquet"),
    "freeze actions": (*FREEZE, *BARS, "--option", "files.bars.actions_path={}.csv"),
    "freeze news json": (
        *(*FREEZE, *BARS, "--tables", "news", "--option", "files.news.shape=polygon_news"),
        *("--option", "files.news.path={}.json"),
    ),
    "freeze --check-vendor files": (
        *(*FREEZE, "--tables", "bars", "--check-vendor", "files", "--option", "files.path={}.csv"),
    ),
    "import csv": ("import", "{}.csv", "--snapshot", "small"),
    "import parquet": ("import", "{}.parquet", "--snapshot", "small"),
    "import memory log": ("import", "{}.md", "--snapshot", "small"),
    "import state log": ("import", "{}.json", "--snapshot", "small"),
    "replay": ("replay", "{}.jsonl.zst"),
    "run --from packed": ("run", "--from", "{}.jsonl.zst"),
    "cassette unpack": ("cassette", "unpack", "{}.jsonl.zst"),
    "cassette verify": ("cassette", "verify", "{}.jsonl.zst"),
    "cassette stats": ("cassette", "stats", "{}.jsonl.zst"),
    "cassette explain": ("cassette", "explain", "abcd", "{}.jsonl.zst"),
}
COMMANDS = {**dict.fromkeys(SETTINGS, 2), **dict.fromkeys(DATA, 3)}
# A folder of state logs is what import takes.
FOLDER_IS_FINE = {"import csv", "import parquet", "import memory log", "import state log"}


@pytest.fixture(autouse=True)
def _nothing_is_waited_for() -> Iterator[None]:
    def give_up(_: int, __: FrameType | None) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    make_workspace(folder)
    (folder / "good.csv").write_text(CSV)
    return folder


def put(kind: str, path: Path) -> None:
    """Put what is no file of its kind where a file is looked for."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as sparse:
            sparse.truncate(2**40)
    elif kind == "garbage":
        path.write_bytes(b"\xff\x00\xfe[[[{,\n" * 50)


@pytest.mark.parametrize("kind", ["missing", "pipe", "folder", "device", "huge", "garbage"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_is_one_line_and_the_code_of_its_kind(
    place: Path,
    command: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "folder" and command in FOLDER_IS_FINE:
        pytest.skip("a folder is what it takes")
    monkeypatch.chdir(place)
    pattern = {**SETTINGS, **DATA}[command]
    name = f"{kind}-{command.replace(' ', '-').replace('/', '-')}"
    for word in pattern:
        if "{}" in word:
            put(kind, place / word.format(name).rpartition("=")[2])
    words = [word.format(name) for word in pattern]

    code = cli.run(words)

    said = capsys.readouterr()
    assert (code, said.err.count("\n")) == (COMMANDS[command], 1), said.err
    assert said.err.startswith("error: ")
    assert "fault" not in said.err
    assert not (place / "reports").exists()
    left = [path.name for path in (place / "data" / "snapshots").iterdir()]
    assert left == ["small"]
