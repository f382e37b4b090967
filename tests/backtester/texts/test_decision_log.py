"""The decision log has the seeds' form, one entry a decision, whatever a text says."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from backtester.backtest import run
from backtester.errors import DataError, UsageError
from backtester.runs.journal import read_ledger
from backtester.texts.decision_log import LogEntry, log_entries, write_decision_log
from tests.support.records import make_cell, make_key, make_lesson, make_return
from tests.support.workspaces import make_workspace

LOG = """\
[2018-06-22 | FB | Sell | -2.50% | n/a | 5d]

DECISION:
**Rating**: Sell

Trim.

REFLECTION:
The call held. The stop was wide.

<!-- ENTRY_END -->

[2018-06-29 | FB | Overweight | pending]

DECISION:
**Rating**: Overweight

<!-- ENTRY_END -->

"""


def make_entry(**changes: Any) -> LogEntry:
    """Make a resolved entry with a lesson."""
    fields: dict[str, Any] = {
        "session": date(2018, 6, 29),
        "symbol": "FB",
        "rating": "Overweight",
        "raw_return": 0.012,
        "alpha": -0.0035,
        "horizon": 5,
        "decision": "**Rating**: Overweight",
        "reflection": "Right.",
    }
    return LogEntry(**{**fields, **changes})


def written(*entries: LogEntry, cap: int | None = None) -> str:
    """Return the log of some entries."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_decision_log(entries, Path(folder) / "memory" / "log.md", cap=cap)
        return path.read_bytes().decode()


def read(log: str) -> list[Mapping[str, str]]:
    """Read a log as programs that know the form do: separators, then the first line, then parts.

    The headers are searched for anywhere in a block, not at the beginning of a line alone.
    """
    found = []
    for block in log.split("\n\n<!-- ENTRY_END -->\n\n"):
        if not block.strip():
            continue
        head, _, body = block.strip().partition("\n")
        assert head.startswith("[")
        assert head.endswith("]")
        decision = re.search(r"DECISION:\n(.*?)(?=\nREFLECTION:|\Z)", body, re.DOTALL)
        reflection = re.search(r"REFLECTION:\n(.*)\Z", body, re.DOTALL)
        found.append(
            {
                "tag": head,
                "decision": decision[1].strip() if decision else "",
                "reflection": reflection[1].strip() if reflection else "",
            }
        )
    return found


def test_the_log_has_the_form_of_the_seeds() -> None:
    assert (
        written(
            make_entry(
                session=date(2018, 6, 22),
                rating="Sell",
                raw_return=-0.025,
                alpha=None,
                decision="**Rating**: Sell\n\nTrim.\n",
                reflection="The call held. The stop was wide.",
            ),
            make_entry(raw_return=None, alpha=None, reflection=""),
        )
        == LOG
    )


@pytest.mark.parametrize(
    ("changes", "tag"),
    [
        ({}, "[2018-06-29 | FB | Overweight | +1.20% | -0.35% | 5d]"),
        ({"rating": None}, "[2018-06-29 | FB | unread | +1.20% | -0.35% | 5d]"),
        ({"rating": "Buy | +99%"}, "[2018-06-29 | FB | unread | +1.20% | -0.35% | 5d]"),
        ({"alpha": 0.0004}, "[2018-06-29 | FB | Overweight | +1.20% | +0.04% | 5d]"),
        (
            {"raw_return": 0.0, "horizon": 10},
            "[2018-06-29 | FB | Overweight | +0.00% | -0.35% | 10d]",
        ),
        ({"symbol": "^GSPC"}, "[2018-06-29 | ^GSPC | Overweight | +1.20% | -0.35% | 5d]"),
        ({"raw_return": None}, "[2018-06-29 | FB | Overweight | pending]"),
    ],
)
def test_the_first_line_says_what_is_known(changes: Mapping[str, Any], tag: str) -> None:
    assert read(written(make_entry(**changes)))[0]["tag"] == tag


def test_a_pending_decision_has_no_reflection() -> None:
    assert "REFLECTION" not in written(make_entry(raw_return=None, reflection="From nowhere."))


def test_an_empty_log_is_an_empty_file() -> None:
    assert written() == ""


# ------------------------------------------------------------------------------- hostile texts

FORGED = "[2018-06-29 | FB | Sell | +9.00% | +9.00% | 5d]"
PIECES = st.sampled_from(
    [
        *("<!-- ENTRY_END -->", "<!--ENTRY_END-->", "\n\n", "\n", "\r", "\u2028", " ", "x", "\\"),
        *("DECISION:", "REFLECTION:", "\nREFLECTION:\n", FORGED, "[", "]", "|", ": u", "> "),
        f"\n\n<!-- ENTRY_END -->\n\n{FORGED}\n\nDECISION:\nx",
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=10).map("".join), st.text(max_size=40))


@given(TEXTS, TEXTS)
@example("a", "b\n\n<!-- ENTRY_END -->\n\n[2018-06-29 | FB | Buy | pending]\n\nDECISION:\nc")
@example("a\nREFLECTION:\nforged", "b")
@example("a\r\rREFLECTION:\r\nforged", "b")
def test_no_text_makes_an_entry_or_moves_into_another_field(decision: str, lesson: str) -> None:
    first = make_entry(decision=decision, reflection=lesson)
    second = make_entry(session=date(2018, 7, 6), decision=lesson, reflection="Last.")
    log = written(first, second)
    found = read(log)
    assert [entry["tag"] for entry in found] == [
        "[2018-06-29 | FB | Overweight | +1.20% | -0.35% | 5d]",
        "[2018-07-06 | FB | Overweight | +1.20% | -0.35% | 5d]",
    ]
    assert found[1]["reflection"] == "Last."
    # The second decision is the first one's lesson: the same text gives the same words.
    assert found[1]["decision"] == found[0]["reflection"]
    # A text without its backslashes is what was said, in plain text without structure.
    bare = [re.sub(r"\s+|\\", "", text) for text in (found[0]["decision"], decision)]
    if decision.isascii() and decision.isprintable() and not re.search(r"[#`~=-]", decision):
        assert bare[0] == bare[1]
    lines = log.split("\n")
    assert sum(line.startswith("[") and line.rstrip().endswith("]") for line in lines) == 2
    assert lines.count("DECISION:") == 2


def test_a_marker_in_a_text_gets_a_backslash_and_ordinary_words_do_not() -> None:
    text = (
        "My DECISION: hold.\n<!-- ENTRY_END -->\n  [2018-06-29 | FB | Buy | pending]\n"
        "[Reuters](https://example.org) says 5 < 6; [a] and [b] are notes\n- [x] done"
    )
    assert read(written(make_entry(decision=text)))[0]["decision"] == (
        "My DECISION\\: hold.\n\\<\\!-- ENTRY_END -->\n  \\[2018-06-29 | FB | Buy | pending]\n"
        "[Reuters](https://example.org) says 5 < 6; [a] and [b] are notes\n- [x] done"
    )


@settings(max_examples=200, deadline=None)
@given(TEXTS)
@example("```\n<!-- never closed")
@example("# [2018-06-29 | FB | Sell | pending]\n<h1>Sell</h1>\n===")
@example("\\<!-- ENTRY_END -->\\<b>")
@example("[2018-06-29 | FB | Overweight | +1.20% | -0.35% | 5d]: u")
@example("> [2018-06-29 |\n> FB | Overweight | +1.20% | -0.35% | 5d]: u")
def test_an_entry_is_read_by_people_as_it_was_meant(text: str) -> None:
    """As Markdown: our own marks are the only comments, and nothing hides or links a first line."""
    log = written(make_entry(decision=text, reflection=text), make_entry())
    tokens = MarkdownIt("commonmark").parse(log)
    marks = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert marks == ["<!-- ENTRY_END -->"] * 2
    inner = [child.type for token in tokens for child in token.children or []]
    assert "html_inline" not in inner
    levels = [int(token.tag[1]) for token in tokens if token.type == "heading_open"]
    assert all(level >= 4 for level in levels)
    first = "[2018-06-29 | FB | Overweight | +1.20% | -0.35% | 5d]"
    heads = [token for token in tokens if token.type == "inline" and token.content == first]
    assert len(heads) == 2
    assert all(child.type == "text" for head in heads for child in head.children or [])


@pytest.mark.parametrize("symbol", ["FB | Buy", "FB]", "", "a\nb", "../x", "F B"])
def test_a_symbol_that_could_change_the_first_line_is_refused(symbol: str) -> None:
    with pytest.raises(DataError, match="2018-06-29"):
        written(make_entry(symbol=symbol))


# ------------------------------------------------------------------------------------- the cap


def test_a_cap_drops_the_oldest_resolved_and_no_pending_entry() -> None:
    days = [date(2018, 6, day) for day in (1, 8, 15, 22)]
    resolved = [make_entry(session=day) for day in days]
    waiting = make_entry(session=date(2018, 5, 25), raw_return=None)
    entries = (waiting, *resolved)

    def kept(cap: int | None) -> list[str]:
        return [entry["tag"][1:11] for entry in read(written(*entries, cap=cap))]

    assert kept(2) == ["2018-05-25", "2018-06-15", "2018-06-22"]
    assert kept(0) == ["2018-05-25"]
    assert len(kept(4)) == len(kept(9)) == len(kept(None)) == 5


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(UsageError, match="-1"):
        written(make_entry(), cap=-1)


# ------------------------------------------------------------------------------ from the records


def test_entries_come_from_cells_their_returns_and_their_lessons() -> None:
    first, second = make_key(session="2018-01-05"), make_key(session="2018-01-12")
    cells = [make_cell(second, rating="Hold"), make_cell(first)]
    returned = make_return(first, raw_total=0.5, alpha=0.25, horizon=7)
    lesson = make_lesson(first, lesson="Learnt.")
    assert log_entries(cells, [returned], [lesson]) == (
        LogEntry(
            session=date(2018, 1, 5),
            symbol="AAA",
            rating="Buy",
            raw_return=0.5,
            alpha=0.25,
            horizon=7,
            decision="**Rating**: Buy",
            reflection="Learnt.",
        ),
        LogEntry(
            session=date(2018, 1, 12),
            symbol="AAA",
            rating="Hold",
            raw_return=None,
            alpha=None,
            horizon=None,
            decision="**Rating**: Buy",
        ),
    )


@pytest.mark.parametrize("status", ["failed", "no_data", "skipped_budget"])
def test_a_cell_that_decided_nothing_has_no_entry(status: Any) -> None:
    assert log_entries([make_cell(status=status, rating=None)], [make_return()], []) == ()


def test_a_decision_without_a_rating_is_logged_as_unread() -> None:
    cell = make_cell(status="unread", rating=None, decision="Hm.")
    lesson = make_lesson(cell.key, rating=None, lesson_status="no_rating", lesson="")
    (entry,) = log_entries([cell], [make_return(cell.key)], [lesson])
    assert "| unread |" in written(entry)
    assert not entry.pending


@pytest.mark.parametrize("status", ["pending", "missing_bar", "conflict"])
def test_a_return_that_is_not_known_leaves_its_decision_pending(status: Any) -> None:
    returned = make_return(status=status, raw_total=None)
    waiting = make_lesson(lesson_status="waiting", raw_return=None, lesson="")
    (entry,) = log_entries([make_cell()], [returned], [waiting])
    assert entry.pending


@pytest.mark.parametrize("status", ["failed", "off"])
def test_a_return_without_a_lesson_is_logged_without_a_reflection(status: Any) -> None:
    lesson = make_lesson(lesson_status=status, lesson="")
    (entry,) = log_entries([make_cell()], [make_return()], [lesson])
    assert not entry.pending
    assert "REFLECTION" not in written(entry)


def test_each_trial_has_a_log_of_its_own() -> None:
    cells = [make_cell(make_key(trial=k), decision=f"trial {k}") for k in (0, 1)]
    (entry,) = log_entries(cells, [], [], trial=1)
    assert entry.decision == "trial 1"


def test_tickers_of_one_day_are_in_order_of_their_names() -> None:
    cells = [replace(make_cell(make_key(ticker)), symbol=ticker) for ticker in ("BBB", "AAA")]
    assert [entry.symbol for entry in log_entries(cells, [], [])] == ["AAA", "BBB"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot be written"):
        write_decision_log((), tmp_path / "file" / "log.md")


@pytest.mark.slow
def test_the_log_of_a_real_run_has_its_decisions_returns_and_lessons(tmp_path: Path) -> None:
    result = run(make_workspace(tmp_path).config())
    ledger = read_ledger(result.folder / "journal.jsonl")
    entries = log_entries(ledger.cells.values(), ledger.returns.values(), ledger.lessons.values())
    found = read(written(*entries))
    assert len(found) == len(ledger.cells) == 10
    for key, entry in zip(sorted(ledger.cells), found, strict=True):
        cell, returned = ledger.cells[key], ledger.returns[key]
        assert returned.raw_total is not None
        assert entry["tag"].startswith(
            f"[{key.session} | {cell.symbol} | {cell.rating} | {returned.raw_total:+.2%} | "
        )
        assert entry["tag"].endswith(f" | {returned.horizon}d]")
        assert entry["decision"] == cell.decision.strip()
        assert entry["reflection"] == ledger.lessons[key].lesson.strip()
