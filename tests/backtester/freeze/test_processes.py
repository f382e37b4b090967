"""Freezes of real processes: two into one name, and one that is killed before there was any."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backtester.freeze.parts import parts_folder
from backtester.snapshots.snapshot import snapshot_names, verify_snapshot
from tests.backtester.freeze.test_freezing import Scripted, bars, killed_at, plan_of, run

ROOT = str(Path(__file__).parents[3])
RACING = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from backtester.errors import RunLocked
from tests.backtester.freeze.test_freezing import Scripted, bars, plan_of, run
folder, mine = Path(sys.argv[1]), sys.argv[2]
def slow(wanted):
    (folder / "asked").touch()
    while not (folder / "told").exists():
        time.sleep(0.01)
    return bars(wanted, close=float(mine))
print("ready", flush=True)
sys.stdin.readline()
try:
    run(folder, plan_of(symbols=("AAA",)), Scripted("yfinance", slow))
    print("won", flush=True)
except RunLocked as error:
    (folder / "told").touch()
    print(f"told {error}", flush=True)
"""


@pytest.mark.slow
def test_of_two_processes_into_one_name_one_wins_and_one_is_told(tmp_path: Path) -> None:
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, str(tmp_path), price, ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for price in ("100", "200")
    ]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    said = []
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("go\n")
        starter.stdin.flush()
    for starter in starters:
        out, _ = starter.communicate(timeout=60)
        said.append(out.strip())
    (winner,) = [at for at, words in enumerate(said) if words == "won"]
    loser = said[1 - winner]
    # Its number is told as soon as the winner has written it down.
    number = rf"( \({starters[winner].pid}\))?"
    words = rf"told another process{number} freezes into mine: wait for it, or choose another name"
    assert re.fullmatch(words, loser)
    folder = tmp_path / "snapshots/mine"
    assert verify_snapshot(folder) == []
    frozen = run(
        tmp_path,
        plan_of(symbols=("AAA",)),
        Scripted("yfinance", lambda wanted: bars(wanted, close=1.0)),
    )
    assert frozen.already
    assert frozen.snapshot.bars("AAA").close[0] == (100.0, 200.0)[winner]


@pytest.mark.slow
def test_a_first_freeze_that_is_killed_lists_nothing_and_the_next_one_is_whole(
    tmp_path: Path,
) -> None:
    killed = 0
    for moment in (3, 14):
        if not killed_at(moment, tmp_path):
            break
        killed += 1
        if "mine" in snapshot_names(tmp_path):
            assert verify_snapshot(tmp_path / "snapshots/mine") == []
    assert killed >= 2
    vendor = Scripted("yfinance", lambda wanted: bars(wanted, close=200.0))
    frozen = run(tmp_path, plan_of(symbols=("AAA",)), vendor, replace=True)
    assert verify_snapshot(frozen.snapshot.path) == []
    assert not parts_folder(frozen.snapshot.path).exists()
