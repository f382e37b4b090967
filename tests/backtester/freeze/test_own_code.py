"""Whatever a vendor of the user's own does, a freeze does not end as if all were well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backtester.cli import run
from backtester.vendors.base import VendorError
from backtester.vendors.own_code import contained

VENDOR = """
import os
import sys
from datetime import UTC, datetime
import pyarrow as pa
from backtester.schema import TABLES
from backtester.vendors.base import Capture
{at_import}

class Vendor:
    name = "mine"
    tables = frozenset({{"bars"}})

    def __init__(self, settings):
        {at_making}

    def capture(self, wanted):
        {at_asking}
        row = {{
            "instrument": wanted.instrument, "session": wanted.start, "currency": "USD",
            "open": 1.0, "high": 1.0, "low": 1.0, "close": 1.0, "volume": 5,
            "known_at": datetime(2024, 3, 4, 21, tzinfo=UTC),
        }}
        rows = pa.Table.from_pylist([row], schema=TABLES["bars"].arrow)
        return {answer}
"""
WHOLE = 'Capture(rows={"bars": rows}, source="a book", licence="mine")'
WAYS_OUT = {
    "exit 0": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "generator": "raise GeneratorExit",
    "cancelled": "import asyncio; raise asyncio.CancelledError",
    "fault": "raise RuntimeError('no key: ' + 'sk-invented-0123456789')",
    "network": "raise ConnectionResetError(104, 'reset')",
    "assert": "assert False",
}
FREEZE = (
    *("freeze", "--quiet", "--symbols", "AAPL", "--start", "2024-03-04", "--end", "2024-03-04"),
    *("--warmup", "0"),
)


def vendor(folder: Path, name: str, **parts: str) -> str:
    usual = {"at_import": "", "at_making": "pass", "at_asking": "pass", "answer": WHOLE}
    (folder / f"{name}.py").write_text(VENDOR.format(**{**usual, **parts}))
    return f"{name}:Vendor"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "own_" + "".join(c if c.isalnum() else "_" for c in request.node.name)


def freeze(own: str) -> int:
    return run([*FREEZE, "--name", "mine", "--vendor", f"bars={own}"])


def check(own: str) -> int:
    return run([*FREEZE, "--check-vendor", own])


def test_a_vendor_that_behaves_is_frozen(tmp_path: Path, name: str) -> None:
    assert freeze(vendor(tmp_path, name)) == 0
    assert (tmp_path / "data" / "snapshots" / "mine" / "manifest.json").is_file()


@pytest.mark.parametrize("command", [freeze, check])
@pytest.mark.parametrize("place", ["at_making", "at_asking"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_vendor_that_leaves_is_named_and_the_code_is_5(
    tmp_path: Path,
    name: str,
    way: str,
    place: str,
    command: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = vendor(tmp_path, name, **{place: WAYS_OUT[way]})

    code = freeze(own) if command is freeze else check(own)

    said = capsys.readouterr()
    if command is check and place == "at_asking" and way in ("fault", "network", "assert"):
        # What it raised is the finding.
        assert code == 7
        assert "breaks 'typed'" in said.out
        return
    assert code == 5, said.err
    assert said.err.count("\n") == 1
    assert own in said.err
    assert "sk-invented" not in said.err
    assert not (tmp_path / "data" / "snapshots" / ".mine.freeze").exists()


@pytest.mark.parametrize(
    ("at_import", "code"),
    [("sys.exit(0)", 5), ("os._exit(0)", 5), ("1 / 0", 2), ("import nowhere", 2), ("(", 2)],
)
def test_a_module_that_cannot_be_loaded_is_named(
    tmp_path: Path, name: str, at_import: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    own = vendor(tmp_path, name, at_import=at_import)
    assert freeze(own) == code
    said = capsys.readouterr().err
    assert own in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("None", "answered a NoneType, not a Capture"),
        ('Capture(rows={"bars": 5}, source="x", licence="x")', "answered bars as a int"),
        ('Capture(rows={"bars": rows}, source="x", licence="x", options={"a": 1})', "options"),
        ('Capture(rows={"bars": rows}, source=None, licence="x")', "source"),
        ('Capture(rows={"bars": rows}, source="x", licence="x", notes=(1,))', "notes"),
        (
            'Capture(rows={"bars": rows}, source="x", licence="x", dropped_undated="many")',
            "dropped_undated",
        ),
    ],
)
def test_an_answer_of_the_wrong_types_is_refused_with_what_it_is(
    tmp_path: Path, name: str, answer: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = vendor(tmp_path, name, answer=answer)
    assert freeze(own) == 2
    said = capsys.readouterr().err
    assert own in said
    assert words in said
    assert said.count("\n") == 1


def test_the_way_out_is_shut_in_a_process_of_its_own_too(tmp_path: Path) -> None:
    own = vendor(tmp_path, "leaves", at_asking="os._exit(0)")
    done = subprocess.run(
        [sys.executable, "-m", "backtester", *FREEZE, "--name", "mine", "--vendor", f"bars={own}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert f"vendor {own} tried to end the process" in done.stderr


def test_a_child_that_a_vendor_forks_may_end_itself_and_the_way_out_is_open_again() -> None:
    leave = os._exit
    with contained("own:Vendor"):
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert os._exit is leave


def test_an_interrupt_is_the_users_and_a_vendor_of_the_table_is_left_alone() -> None:
    with pytest.raises(KeyboardInterrupt), contained("own:Vendor"):
        raise KeyboardInterrupt
    with pytest.raises(SystemExit), contained("yfinance"):
        raise SystemExit(3)
    with (
        pytest.raises(VendorError, match="own:Vendor failed"),
        contained("own:Vendor"),
    ):
        raise ZeroDivisionError
