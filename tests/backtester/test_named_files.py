"""A file that somebody names is a regular one of a size that fits, or nothing is waited for."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from backtester.named_files import UnfitFile, open_named, read_named

MB = 2**20


@pytest.fixture(autouse=True)
def _nothing_is_waited_for() -> Iterator[None]:
    """End a test that waits for what never comes."""

    def give_up(_: int, __: FrameType | None) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * MB)
    assert read_named(file, most=MB) == b"x" * MB
    assert read_named(Path(os.path.relpath(file)), most=MB) == b"x" * MB
    (tmp_path / "link").symlink_to(file)
    assert len(read_named(tmp_path / "link", most=MB)) == MB
    with pytest.raises(UnfitFile) as caught:
        read_named(file, most=MB - 1)
    assert caught.value.strerror == "it is larger than 0 MB"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(UnfitFile, match="larger than 16 MB"):
        read_named(file, most=16 * MB)


def test_what_is_no_regular_file_is_told_by_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        for place, words in (
            (tmp_path / "pipe", "it is a pipe"),
            (tmp_path / "folder", "it is a folder"),
            (tmp_path / "socket", "it is a socket"),
            (Path("/dev/zero"), "it is a device"),
            (Path("/dev/null"), "it is a device"),
            (tmp_path / "a\0b", "its name holds what no name can"),
        ):
            with pytest.raises(UnfitFile, match=words):
                read_named(place, most=MB)


def test_a_pipe_that_somebody_writes_into_is_no_file_either(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"a,b\n")
    with (
        pytest.raises(UnfitFile, match="write it into one first"),
        open_named(Path(f"/dev/fd/{read_end}")),
    ):
        pass
    os.close(read_end)
    os.close(write_end)


def test_a_name_that_turns_into_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x")
    seen = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda *_: seen)
    with pytest.raises(UnfitFile, match="it is a pipe"):
        read_named(tmp_path / "pipe", most=MB)


def test_what_the_system_says_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_named(tmp_path / "none", most=MB)
    with pytest.raises(OSError, match="name too long"):
        read_named(tmp_path / ("x" * 300), most=MB)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x")
    stop = threading.Event()

    def write() -> None:
        with file.open("ab", buffering=0) as log:
            while not stop.is_set():
                log.write(b"x" * 4096)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(UnfitFile, match=r"grows while it is read|larger than 1 MB"):
            _read_often(file)
    finally:
        stop.set()
        writer.join()


def _read_often(file: Path) -> None:
    for _ in range(1000):
        read_named(file, most=MB)
