"""Folders of snapshots: whole or not there, damage named, writers and readers side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from backtester.errors import DataError, UsageError
from backtester.snapshots.folder import verify_snapshot
from backtester.snapshots.manifest import Manifest, Source, load_manifest, sha256_of
from backtester.snapshots.snapshot import Snapshot, open_folder, write_snapshot
from tests.support.snapshots import closes, dividend, make_tables

SESSIONS = ("2024-03-25", "2024-03-26", "2024-03-27", "2024-03-28")
CAPTURED = datetime(2024, 6, 1, tzinfo=UTC)
HAND = Source(
    name="hand",
    vendor="test",
    item="closes",
    tables=("instruments", "bars", "actions"),
    licence="none",
    captured_at=CAPTURED,
)


def write(folder: Path, price: float = 100, *, name: str = "mine") -> Snapshot:
    tables = make_tables(
        {"AAA": closes([(session, price) for session in SESSIONS])},
        actions=[dividend("AAA", "2024-03-27", 0.5)],
    )
    return write_snapshot(
        folder,
        tables,
        name=name,
        declared_start=date(2024, 3, 25),
        declared_end=date(2024, 3, 28),
        sources=[HAND],
        absent={"news": "not asked for"},
        captured_at=CAPTURED,
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_back_with_one_id(tmp_path: Path) -> None:
    written = write(tmp_path / "mine")
    again = open_folder(tmp_path / "mine")
    assert again.id == written.id
    assert again.bars("AAA").close.tolist() == [100.0] * 4
    assert again.actions("AAA").amount.tolist() == [0.5]
    assert again.absent_reason("news") == "not asked for"
    assert names(tmp_path / "mine") == [
        "actions.parquet",
        "bars.parquet",
        "instruments.parquet",
        "manifest.json",
    ]


def test_the_manifest_says_what_each_file_holds(tmp_path: Path) -> None:
    manifest = write(tmp_path / "mine").manifest
    entry = manifest.tables["bars"]
    file = tmp_path / "mine" / entry.file
    assert (entry.rows, entry.bytes, entry.sha256) == (4, file.stat().st_size, sha256_of(file))
    assert entry.min_known_at == datetime(2024, 3, 25, 20, 0, tzinfo=UTC)
    assert entry.max_known_at == datetime(2024, 3, 28, 20, 0, tzinfo=UTC)
    assert (entry.sources, entry.licence) == (("hand",), "none")
    assert manifest.tables["instruments"].min_known_at is None
    assert (manifest.declared_start, manifest.declared_end) == (
        date(2024, 3, 25),
        date(2024, 3, 28),
    )
    assert manifest.captured_at == CAPTURED
    assert verify_snapshot(tmp_path / "mine") == []


def test_the_same_capture_gives_the_same_manifest_to_the_byte(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    assert (tmp_path / "one/manifest.json").read_bytes() == (
        tmp_path / "two/manifest.json"
    ).read_bytes()


def test_gaps_and_warnings_are_kept_in_the_manifest(tmp_path: Path) -> None:
    tables = make_tables({"AAA": closes([("2024-03-25", 1), ("2024-03-27", 1)])})
    snapshot = write_snapshot(
        tmp_path / "gappy",
        tables,
        name="gappy",
        declared_start=date(2024, 3, 25),
        declared_end=date(2024, 3, 27),
        sources=[HAND],
        absent={},
        captured_at=CAPTURED,
    )
    (finding,) = snapshot.manifest.findings
    assert (finding.kind, finding.instrument, finding.session) == (
        "gap",
        "AAA",
        date(2024, 3, 26),
    )
    assert verify_snapshot(tmp_path / "gappy") == []


def test_rows_without_a_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="table bars has rows and no source"):
        write_snapshot(
            tmp_path / "mine",
            make_tables({"AAA": closes([("2024-03-25", 1)])}),
            name="mine",
            declared_start=date(2024, 3, 25),
            declared_end=date(2024, 3, 25),
            sources=[HAND.model_copy(update={"tables": ("instruments", "actions")})],
            absent={},
            captured_at=CAPTURED,
        )
    with pytest.raises(DataError):
        open_folder(tmp_path / "mine")


# -------------------------------------------------------------------------------- damage


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, empty])
@pytest.mark.parametrize("table", ["bars", "actions", "instruments"])
def test_a_damaged_file_is_named_with_the_expected_and_the_actual_hash(
    tmp_path: Path, table: str, damage: object
) -> None:
    write(tmp_path / "mine")
    file = tmp_path / "mine" / f"{table}.parquet"
    expected = sha256_of(file)
    assert callable(damage)
    damage(file)
    actual = sha256_of(file)
    with pytest.raises(DataError) as caught:
        open_folder(tmp_path / "mine")
    assert all(word in str(caught.value) for word in (str(file), expected, actual))
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert (problem.file, problem.kind) == (file.name, "damaged")
    assert (problem.expected, problem.actual) == (expected, actual)


def test_a_missing_file_is_named_with_its_hash(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    file = tmp_path / "mine" / "bars.parquet"
    expected = sha256_of(file)
    file.unlink()
    with pytest.raises(DataError, match=rf"bars.parquet cannot be read .*{expected}"):
        open_folder(tmp_path / "mine")
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert (problem.kind, problem.expected) == ("missing", expected)


def test_a_file_that_is_no_parquet_is_refused_also_without_verification(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    (tmp_path / "mine" / "bars.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="is no Parquet file"):
        open_folder(tmp_path / "mine", verify=False)


def edit(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_rows_that_are_not_those_of_the_id_are_refused(tmp_path: Path) -> None:
    snapshot = write(tmp_path / "mine")
    edit(tmp_path / "mine", snapshot_id="0" * 64)
    with pytest.raises(DataError, match=f"the rows have id {snapshot.id}"):
        open_folder(tmp_path / "mine")
    assert [problem.kind for problem in verify_snapshot(tmp_path / "mine")] == ["id"]


def test_whole_files_of_another_snapshot_do_not_pass_for_its_own(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    write(tmp_path / "other", price=200)
    entries = json.loads((tmp_path / "other/manifest.json").read_text())["tables"]
    (tmp_path / "mine/bars.parquet").write_bytes((tmp_path / "other/bars.parquet").read_bytes())
    edit(tmp_path / "mine", tables=entries)
    with pytest.raises(DataError, match="the rows have id"):
        open_folder(tmp_path / "mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged at document"),
        ("{}", "is damaged at format"),
        ('{"format": 1', "is damaged at document"),
        ("[]", "is damaged at document"),
    ],
)
def test_a_damaged_manifest_says_where(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "mine")
    (tmp_path / "mine/manifest.json").write_text(text)
    with pytest.raises(DataError, match=message):
        open_folder(tmp_path / "mine")
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert (problem.file, problem.kind) == ("manifest.json", "damaged")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "has format 2, this version reads 1"),
        ({"schema_version": 9}, "has schema_version 9"),
        ({"surprise": 1}, "is damaged at surprise"),
    ],
)
def test_a_manifest_of_another_version_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write(tmp_path / "mine")
    edit(tmp_path / "mine", **changes)
    with pytest.raises(DataError, match=message):
        open_folder(tmp_path / "mine")


@pytest.mark.parametrize("file", ["../bars.parquet", "/etc/passwd", ".hidden", "a/b.parquet", ""])
def test_a_manifest_cannot_point_out_of_its_folder(tmp_path: Path, file: str) -> None:
    write(tmp_path / "mine")
    tables = json.loads((tmp_path / "mine/manifest.json").read_text())["tables"]
    tables["bars"]["file"] = file
    edit(tmp_path / "mine", tables=tables)
    with pytest.raises(DataError, match="is no plain file name"):
        open_folder(tmp_path / "mine")


def test_verify_names_what_the_manifest_says_wrongly(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    tables = json.loads((tmp_path / "mine/manifest.json").read_text())["tables"]
    tables["bars"]["rows"] = 5
    tables["actions"]["max_known_at"] = "2024-03-28T20:00:00Z"
    edit(tmp_path / "mine", tables=tables, findings=[{"kind": "gap", "message": "planted"}])
    found = {(p.file, p.kind): p for p in verify_snapshot(tmp_path / "mine")}
    assert sorted(found) == [
        ("actions.parquet", "manifest"),
        ("bars.parquet", "manifest"),
        ("manifest.json", "findings"),
    ]
    rows = found["bars.parquet", "manifest"]
    assert (rows.expected, rows.actual) == ("5", "4")


def test_a_folder_whose_capture_did_not_finish_is_no_snapshot(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    (tmp_path / "mine/manifest.json").unlink()
    with pytest.raises(DataError, match="its capture did not finish"):
        open_folder(tmp_path / "mine")


# ------------------------------------------------------------------------------- writers


def test_a_second_capture_replaces_the_first_and_leaves_no_file_behind(tmp_path: Path) -> None:
    first = write(tmp_path / "mine")
    second = write(tmp_path / "mine", price=200)
    assert open_folder(tmp_path / "mine").id == second.id != first.id
    assert len(names(tmp_path / "mine")) == 4
    third = write(tmp_path / "mine", price=300)
    assert open_folder(tmp_path / "mine").id == third.id
    assert verify_snapshot(tmp_path / "mine") == []


def test_what_a_dead_writer_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    (tmp_path / "mine/.bars.parquet.1.tmp").write_bytes(b"half")
    (tmp_path / "mine/bars-0123456789ab.parquet").write_bytes(b"unnamed")
    (tmp_path / "mine/NOTES.txt").write_text("a user's own file")
    write(tmp_path / "mine")
    assert "NOTES.txt" in names(tmp_path / "mine")
    assert len(names(tmp_path / "mine")) == 5


def test_a_capture_can_be_put_over_a_damaged_one(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    (tmp_path / "mine/manifest.json").write_text("{")
    written = write(tmp_path / "mine")
    assert open_folder(tmp_path / "mine").id == written.id
    assert verify_snapshot(tmp_path / "mine") == []


def test_a_refused_capture_leaves_the_old_snapshot_whole(tmp_path: Path) -> None:
    old = write(tmp_path / "mine")
    with pytest.raises(DataError, match="a price is positive"):
        write(tmp_path / "mine", price=-1)
    assert open_folder(tmp_path / "mine").id == old.id


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "file" / "mine")


@pytest.mark.parametrize("name", ["", "..", "../x", "a b", ".hidden", "a/b"])
def test_a_name_that_is_none_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no snapshot name"):
        write(tmp_path / "mine", name=name)


def test_two_writers_of_one_name_leave_one_whole_snapshot_and_disturb_no_reader(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mine"
    ids = {write(tmp_path / f"alone-{price}", price=price).id for price in (100, 200)}
    write(folder, price=100)
    faults: list[BaseException] = []
    seen: set[str] = set()
    stop = threading.Event()

    def writer(price: float) -> None:
        try:
            for _ in range(10):
                write(folder, price=price)
        except (DataError, UsageError) as error:
            faults.append(error)

    def reader() -> None:
        try:
            while not stop.is_set():
                seen.add(open_folder(folder).id)
        except (DataError, UsageError) as error:
            faults.append(error)

    writers = [threading.Thread(target=writer, args=(price,)) for price in (100, 200)]
    looking = threading.Thread(target=reader)
    looking.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    looking.join()
    assert faults == []
    assert seen <= ids
    assert verify_snapshot(folder) == []
    assert len(names(folder)) == 4


KILLED_WRITER = textwrap.dedent(
    """
    import os, pathlib, signal, sys
    from backtester.calendar import calendar_by_code
    from backtester.snapshots.snapshot import open_folder
    from tests.backtester.snapshots.test_folder import write

    calendar_by_code("XNYS")
    folder = pathlib.Path(sys.argv[1])
    real = {name: getattr(pathlib.Path, name) for name in ("replace", "unlink")}
    real_fsync = os.fsync

    def run(fatal):
        steps = 0

        def step():
            nonlocal steps
            if steps == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1

        def fsync(descriptor):
            step()
            real_fsync(descriptor)

        def replace(path, target):
            step()
            return real["replace"](path, target)

        def unlink(path, missing_ok=False):
            if not missing_ok:
                step()
            return real["unlink"](path, missing_ok=missing_ok)

        os.fsync = fsync
        pathlib.Path.replace = replace
        pathlib.Path.unlink = unlink
        write(folder, price=200)
        os._exit(0)

    fatal = 0
    while True:
        child = os.fork()
        if child == 0:
            run(fatal)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        check = os.fork()
        if check == 0:
            print(fatal, killed, open_folder(folder).bars("AAA").close[0], flush=True)
            os._exit(0)
        if os.waitpid(check, 0)[1]:
            sys.exit(f"the snapshot does not open after a kill at step {fatal}")
        if not killed:
            break
        fatal += 1
    """
)


def test_a_writer_killed_at_any_step_leaves_the_old_snapshot_or_the_new_one_whole(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mine"
    write(folder, price=100)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    prices = [float(price) for _, _, price in lines]
    # Once the manifest is replaced the new prices stay; until then the old ones do.
    assert prices == sorted(prices)
    assert prices.count(100.0) >= 11
    assert lines[-1][1] == "False"
    assert verify_snapshot(folder) == []


def test_a_manifest_survives_its_own_text(tmp_path: Path) -> None:
    manifest = write(tmp_path / "mine").manifest
    assert Manifest.model_validate_json(manifest.to_json()) == manifest
    assert load_manifest(tmp_path / "mine") == manifest


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "\x1b[31mred", "no snapshot name"),
        ("name", "", "no snapshot name"),
        ("captured_at", "0001-01-01T00:00:00+14:00", "no instant at which data can have been"),
        ("captured_at", "9999-12-31T23:59:59-14:00", "no instant at which data can have been"),
        ("captured_at", "2024-06-01T00:00:00", "no instant at which data can have been"),
        ("declared_end", "2024-03-24", "ends before it starts"),
    ],
)
def test_a_manifest_that_says_what_cannot_be_is_damaged(
    tmp_path: Path, field: str, value: str, words: str
) -> None:
    write(tmp_path / "mine")
    path = tmp_path / "mine" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(DataError, match=words):
        open_folder(tmp_path / "mine")
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert words in problem.message


def test_a_manifest_without_a_core_table_is_a_problem_and_no_fault(tmp_path: Path) -> None:
    write(tmp_path / "mine")
    path = tmp_path / "mine" / "manifest.json"
    document = json.loads(path.read_text())
    del document["tables"]["bars"]
    path.write_text(json.dumps(document))
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert problem.message == "it names no bars: capture it anew"


@pytest.mark.parametrize("name", ["manifest.json", "bars.parquet"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_in_a_folder_is_not_waited_for(
    tmp_path: Path, name: str, kind: str
) -> None:
    write(tmp_path / "mine")
    path = tmp_path / "mine" / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(DataError, match=f"it is a {kind}"):
        open_folder(tmp_path / "mine")
    (problem,) = verify_snapshot(tmp_path / "mine")
    assert f"it is a {kind}" in problem.message
