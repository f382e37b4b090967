"""The journal keeps what was synced, cuts what was torn, and refuses what is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtester.errors import DataError
from backtester.runs.journal import Journal, encode, read_ledger
from tests.support.records import make_cell, make_key, make_lesson, make_return


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, *records: object) -> None:
    journal = Journal.open(path)
    journal.append(records)  # type: ignore[arg-type]
    journal.close()


def test_what_was_appended_is_read_back_equal_to_the_last_bit(path: Path) -> None:
    cell = make_cell(wall_s=0.1 + 0.2)
    returned = make_return(raw_total=1.1 * 1.1 - 1, alpha=None, alpha_reason="no bar")
    lesson = make_lesson(lesson='text with "quotes", \n newlines and 株価')
    write(path, cell, returned, lesson)

    ledger = read_ledger(path)

    assert ledger.cells == {cell.key: cell}
    assert ledger.returns == {returned.key: returned}
    assert ledger.lessons == {lesson.key: lesson}
    assert ledger.returns[returned.key].raw_total == 0.21000000000000019


def test_a_file_cut_at_any_byte_of_its_last_record_keeps_all_records_before(path: Path) -> None:
    first, second = make_cell(make_key("AAA")), make_cell(make_key("BBB"))
    write(path, first, second)
    content = path.read_bytes()
    last = len(content) - len(encode(second))

    for length in range(last, len(content)):
        path.write_bytes(content[:length])
        journal = Journal.open(path)
        assert list(journal.ledger.cells) == [first.key], length
        journal.append([second])
        journal.close()
        assert path.read_bytes() == content, length


def test_a_reader_leaves_the_torn_tail_of_a_run_in_progress_alone(path: Path) -> None:
    write(path, make_cell())
    torn = path.read_bytes() + b"0123456789abcdef {"
    path.write_bytes(torn)

    assert len(read_ledger(path).cells) == 1
    assert path.read_bytes() == torn


def test_a_file_cut_within_its_header_begins_anew(path: Path) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:10])

    write(path, make_cell())

    assert len(read_ledger(path).cells) == 1


@pytest.mark.parametrize("line", [0, 1, 2])
def test_one_changed_byte_before_the_tail_is_an_error_that_names_the_line(
    path: Path, line: int
) -> None:
    write(path, make_cell(make_key("AAA")), make_cell(make_key("BBB")))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line][:40] + bytes([lines[line][40] ^ 1]) + lines[line][41:]
    path.write_bytes(b"".join(lines))

    with pytest.raises(DataError, match=f"damaged at line {line + 1}"):
        Journal.open(path)
    with pytest.raises(DataError, match=f"damaged at line {line + 1}"):
        read_ledger(path)


def test_a_cell_that_is_decided_again_supersedes_the_old_record_and_keeps_it(path: Path) -> None:
    old, new = make_cell(rating="Buy"), make_cell(rating="Sell")
    write(path, old)
    write(path, new)

    ledger = read_ledger(path)

    assert ledger.cells == {new.key: new}
    assert ledger.superseded == [old]


def test_a_missing_journal_is_an_error_for_a_reader(path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_ledger(path)


def test_no_text_can_forge_a_record(path: Path) -> None:
    forged = encode(make_lesson(make_key("EVIL"))).decode()
    write(path, make_lesson(lesson=f"quiet\n{forged}\n"))

    assert [key.ticker for key in read_ledger(path).lessons] == ["AAA"]
