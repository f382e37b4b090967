"""What a freeze that was refused or failed leaves behind: what a next try uses, nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from backtester.errors import BacktesterError, DataError, UsageError
from backtester.freeze import freezing
from backtester.freeze.parts import parts_folder
from backtester.freeze.plan import FreezePlan
from backtester.snapshots import folder as folders
from backtester.vendors.base import Capture, RateLimited, VendorError, Wanted
from tests.backtester.freeze.test_freezing import NOW, Scripted, bars, plan_of, run


def place_of(tmp_path: Path) -> Path:
    return tmp_path / "snapshots" / plan_of().name


def left(tmp_path: Path) -> list[str]:
    snapshots = tmp_path / "snapshots"
    return sorted(path.name for path in snapshots.iterdir()) if snapshots.exists() else []


def raising(error: BaseException, at: str) -> Callable[[Wanted], Capture]:
    def answer(wanted: Wanted) -> Capture:
        if wanted.symbol == at:
            raise error
        return bars(wanted)

    return answer


# Made anew for each test: an error that passes has words added.
ERRORS: dict[str, Callable[[], BacktesterError]] = {
    "limited": lambda: RateLimited("later", 5.0),
    "vendor": lambda: VendorError("unreachable"),
    "data": lambda: DataError("no"),
    "usage": lambda: UsageError("no"),
}
OTHERS: dict[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "fault": lambda: RuntimeError("fault"),
    "system": lambda: OSError(28, "No space left on device"),
}


@pytest.mark.parametrize("kind", [*ERRORS, *OTHERS])
def test_a_freeze_that_kept_no_answer_leaves_nothing(tmp_path: Path, kind: str) -> None:
    error = {**ERRORS, **OTHERS}[kind]()
    with pytest.raises(type(error)) as caught:
        run(tmp_path, plan_of(), Scripted("yfinance", raising(error, "AAA")))
    assert left(tmp_path) == []
    assert "kept" not in str(caught.value)


@pytest.mark.parametrize("kind", ERRORS)
def test_one_that_kept_answers_says_where_and_how_to_go_on(tmp_path: Path, kind: str) -> None:
    error = ERRORS[kind]()
    with pytest.raises(type(error)) as caught:
        run(tmp_path, plan_of(), Scripted("yfinance", raising(error, "BBB")))
    assert left(tmp_path) == [parts_folder(place_of(tmp_path)).name]
    assert str(caught.value).endswith(
        f"; 1 answer is kept in {parts_folder(place_of(tmp_path))}, from which the same command "
        "goes on (--restart drops them)"
    )
    if isinstance(error, RateLimited):
        assert caught.value.wait_s == 5.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", OTHERS)
def test_an_interrupt_keeps_what_was_answered(tmp_path: Path, kind: str) -> None:
    error = OTHERS[kind]()
    with pytest.raises(type(error)):
        run(tmp_path, plan_of(), Scripted("yfinance", raising(error, "BBB")))
    again = Scripted("yfinance", bars)
    assert run(tmp_path, plan_of(), again).kept == 1
    assert again.asked == [("bars", "BBB")]
    assert left(tmp_path) == [plan_of().name]


def test_a_refused_plan_leaves_the_answers_of_another_one_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(VendorError):
        run(tmp_path, plan_of(), Scripted("yfinance", raising(VendorError("away"), "BBB")))
    early = NOW.replace(year=2018)
    with pytest.raises(UsageError, match=r"too late: .*1 answer is kept in .*--restart drops them"):
        run(tmp_path, plan_of(), Scripted("yfinance", bars), now=early)
    assert left(tmp_path) == [parts_folder(place_of(tmp_path)).name]


def test_a_refused_plan_leaves_nothing_beside_the_snapshot_that_is_there(tmp_path: Path) -> None:
    run(tmp_path, plan_of(), Scripted("yfinance", bars))
    with pytest.raises(UsageError, match=r"--replace$"):
        run(tmp_path, plan_of(symbols=("AAA",)), Scripted("yfinance", bars))
    with pytest.raises(DataError):
        run(
            tmp_path,
            plan_of(symbols=("AAA",)),
            Scripted("yfinance", raising(DataError("no"), "AAA")),
            replace=True,
        )
    assert left(tmp_path) == [plan_of().name]


def test_a_snapshot_that_is_there_is_found_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path, plan_of(), Scripted("yfinance", bars))

    def refuse(folder: Path, captured_at: object) -> object:
        raise OSError(30, "Read-only file system", str(folder))

    monkeypatch.setattr(freezing, "open_parts", refuse)
    again = Scripted("yfinance", bars)
    found = run(tmp_path, plan_of(), again)
    assert (found.already, found.snapshot.id, again.asked) == (True, whole.snapshot.id, [])


def test_a_disk_that_is_full_at_the_end_leaves_the_answers_and_no_folder_of_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = folders.write_whole

    def full(path: Path, data: bytes) -> None:
        if path.name == "bars.parquet":
            raise OSError(28, os.strerror(28), str(path))
        write(path, data)

    monkeypatch.setattr(folders, "write_whole", full)
    words = r"No space left on device\): make room .*; 2 answers are kept in"
    with pytest.raises(UsageError, match=words):
        run(tmp_path, plan_of(), Scripted("yfinance", bars))
    assert left(tmp_path) == [parts_folder(place_of(tmp_path)).name]
    monkeypatch.undo()
    again = Scripted("yfinance", bars)
    assert run(tmp_path, plan_of(), again).kept == 2
    assert again.asked == []


@pytest.mark.parametrize("name", ["freeze.json", "holder"])
def test_what_is_no_file_among_the_answers_is_not_waited_for(tmp_path: Path, name: str) -> None:
    parts = parts_folder(place_of(tmp_path))
    parts.mkdir(parents=True)
    if name == "holder":
        (parts / name).symlink_to("/dev/null")
    else:
        os.mkfifo(parts / name)
    assert run(tmp_path, plan_of(), Scripted("yfinance", bars)).asked == 2
    assert left(tmp_path) == [plan_of().name]


def test_a_plan_of_files_keeps_no_answers(tmp_path: Path) -> None:
    plan = FreezePlan(
        name=plan_of().name,
        symbols=("AAA",),
        start=plan_of().start,
        end=plan_of().end,
        chains={"bars": ("files",)},
        options={"files": {"bars": {"path": str(tmp_path / "none.csv")}}},
    )
    with pytest.raises(DataError, match=r"there is no file .*none.csv$"):
        run(tmp_path, plan)
    assert left(tmp_path) == []
