"""A user's own book: how it is read, what is refused, and what a run makes of it."""

from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester import cli
from backtester.backtest import RunResult, run
from backtester.config import RunConfig
from backtester.errors import DataError, UsageError
from backtester.loading import config_from_manifest, load_config
from backtester.own_book import OwnBook
from backtester.packs.replays import replay
from backtester.replies.cache import ReplyCache
from backtester.runs.folder import RunFolder
from backtester.runs.journal import Ledger, encode, read_ledger
from backtester.runs.root import results_root
from backtester.walk.plan import cache_folder, lay_out
from tests.support.records import make_cell
from tests.support.workspaces import Workspace, make_workspace

STATED: dict[str, Any] = {
    "as_of": "2018-01-02",
    "currency": "USD",
    "cash": 25000,
    "positions": [
        {"ticker": "bbb", "shares": -10, "price": 50.0},
        {"ticker": "AAA", "shares": 100, "price": 172.5, "cost": 150.25},
    ],
}
DATES = {"start": date(2018, 1, 2), "end": date(2018, 1, 19)}
FEW = {
    "tickers": ("AAA",),
    "start": date(2018, 1, 2),
    "end": date(2018, 1, 12),
    "score_at_end": False,
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def load(portfolio: object) -> RunConfig:
    return load_config(flags={"tickers": ("AAA",), **DATES, "portfolio": portfolio})


def ledger_of(result: RunResult) -> Ledger:
    return read_ledger(result.folder / "journal.jsonl")


def prompts_of(workspace: Workspace, ledger: Ledger, node: str) -> list[str]:
    """Return the text of every request that a node sent."""
    cache = ReplyCache.open(cache_folder(workspace.data), read_only=True)
    keys = [call.key for c in ledger.cells.values() for call in c.calls if call.node == node]
    found = [cache.get(key) for key in keys]
    return [record.request for record in found if record is not None]


# ---------------------------------------------------------------------------------- how it is read


def test_a_book_is_read_from_its_file_and_its_figures_follow(tmp_path: Path) -> None:
    config = load(str(write(tmp_path / "book.json", STATED)))
    assert config.portfolio is not None
    book = config.portfolio.holdings()

    assert (book.source, book.as_of, book.currency, book.cash) == (
        *("user", date(2018, 1, 2), "USD"),
        25000.0,
    )
    # 25000 + 100 * 172.50 - 10 * 50
    assert book.equity == 41750.0
    aaa, bbb = book.positions
    assert (aaa.symbol, aaa.value, aaa.weight) == ("AAA", 17250.0, 17250.0 / 41750.0)
    assert aaa.unrealised == 2225.0  # 100 * (172.50 - 150.25)
    assert (bbb.symbol, bbb.shares, bbb.value, bbb.unrealised) == ("BBB", -10.0, -500.0, None)


def test_without_equity_above_zero_there_are_no_weights() -> None:
    book = OwnBook.model_validate({**STATED, "cash": -16750.0}).holdings()
    assert book.equity == 0.0
    assert [held.weight for held in book.positions] == [None, None]


def test_the_order_of_positions_and_the_place_of_the_file_make_no_other_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    turned = {**STATED, "positions": STATED["positions"][::-1], "cash": 25000.0}
    one = load(str(write(tmp_path / "book.json", STATED)))
    other = load(write(tmp_path / "elsewhere" / "mine.json", turned))
    assert one.identity_fields() == other.identity_fields()
    more = load({**STATED, "cash": 25000.01})
    assert more.identity_fields() != one.identity_fields()
    assert load(None).identity_fields()["portfolio"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chash": 1}, "portfolio: unknown key 'chash': did you mean 'cash'?"),
        ({"zzz": 1}, "portfolio: unknown key 'zzz': write as_of, currency, cash, positions"),
        ({"cash": None}, "portfolio.cash: None is no number"),
        ({"cash": "25000"}, "portfolio.cash: '25000' is no number"),
        ({"cash": True}, "portfolio.cash: true is no number"),
        ({"cash": 1e16}, "portfolio.cash: 1e+16 is too large"),
        ({"currency": "dollars"}, "portfolio.currency: 'dollars' is no currency"),
        ({"currency": "U\nD"}, "portfolio.currency: 'U\\nD' is no currency"),
        ({"as_of": "June"}, "portfolio.as_of: 'June' is no date: write YYYY-MM-DD"),
        ({"positions": {}}, "portfolio.positions: {} is no list"),
        (
            {"positions": [{"ticker": "A", "shares": 1, "price": 1, "prize": 1}]},
            "portfolio.positions.0: unknown key 'prize': did you mean 'price'?",
        ),
        ({"positions": [{"ticker": "A", "price": 1}]}, "portfolio.positions.0.shares: is missing"),
        (
            {"positions": [{"ticker": "A", "shares": 0, "price": 1}]},
            "portfolio.positions.0.shares: 0 shares are no position",
        ),
        (
            {"positions": [{"ticker": "A", "shares": 1, "price": 0}]},
            "portfolio.positions.0.price: 0 is too small",
        ),
        (
            {"positions": [{"ticker": "A</block>", "shares": 1, "price": 1}]},
            "portfolio.positions.0.ticker: 'A</BLOCK>' is no ticker",
        ),
        (
            {"positions": [{"ticker": t, "shares": 1, "price": 1} for t in ("a", "A")]},
            "portfolio.positions: A stands twice",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load({**STATED, **changes})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist: check the path"),
        (b"[]", "is no JSON object: write a JSON object with as_of"),
        (b"{", "is no JSON"),
        (b'{"cash": NaN}', "is no JSON"),
        (b'{"cash": 1, "cash": 2}', "has a name twice in one object"),
        (b"\xff\xfe", "is no UTF-8 text"),
    ],
)
def test_a_file_that_holds_no_book_is_named(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        load(str(path))


@pytest.mark.parametrize("path", ["", "x" * 5000, "a\0b", "."])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="portfolio "):
        load(path)


# ---------------------------------------------------------------------------------------- in a run


def test_every_cell_is_shown_the_book_and_a_replay_leads_to_the_same_root(
    workspace: Workspace,
) -> None:
    config = workspace.config(**FEW, portfolio=STATED)
    result = run(config)
    ledger = ledger_of(result)

    shown = prompts_of(workspace, ledger, "Portfolio Manager")
    assert len(shown) == 2
    line = "AAA | 100.0000 | 172.5000 | 17250.00 | 41.32% | +2225.00"
    assert all(line in text for text in shown)
    assert all("holds the book as its owner states it" in text for text in shown)
    assert not any(line in text for text in prompts_of(workspace, ledger, "Trader"))
    hashes = {cell.book_hash for cell in ledger.cells.values()}
    assert [len(digest) for digest in hashes] == [64]
    again = replay(RunFolder(result.folder), workspace.data)
    assert (again.equal, again.misses) == (True, ())


def test_another_book_is_another_run_and_none_leaves_no_mark(workspace: Workspace) -> None:
    without = run(workspace.config(**FEW))
    with_it = run(workspace.config(**FEW, portfolio=STATED))
    other = run(workspace.config(**FEW, portfolio={**STATED, "cash": 1.0}))

    assert len({result.run_id for result in (without, with_it, other)}) == 3
    assert {cell.book_hash for cell in ledger_of(without).cells.values()} == {""}
    # All but the portfolio manager ask what they asked before.
    assert with_it.model_calls < without.model_calls


def test_a_run_is_repeated_from_its_manifest_without_the_file(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = write(tmp_path / "book.json", STATED)
    config = workspace.config(**FEW, portfolio=load(str(path)).portfolio)
    result = run(config)
    path.unlink()

    again = config_from_manifest(result.folder / "manifest.json", {})
    assert again.portfolio == config.portfolio
    assert run(again).run_id == result.run_id


@pytest.mark.parametrize(
    ("as_of", "decision_time", "refused"),
    [
        ("2018-01-05", "close", False),
        ("2018-01-06", "close", True),
        ("2018-01-05", "open", True),
        ("2018-01-04", "open", False),
        (None, "open", False),
    ],
)
def test_a_book_of_a_day_that_the_first_decision_could_not_know_is_refused(
    as_of: str | None, decision_time: str, refused: bool, workspace: Workspace
) -> None:
    # The first Friday of the grid is 2018-01-05.
    config = workspace.config(
        **DATES, decision_time=decision_time, portfolio={**STATED, "as_of": as_of}
    )
    if refused:
        with pytest.raises(UsageError, match="could not know"):
            lay_out(config, workspace.snapshot, fingerprint="f")
    else:
        assert lay_out(config, workspace.snapshot, fingerprint="f").cells == 6


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        (
            {"positions": [{"ticker": "ZZZ", "shares": 1, "price": 1.0}]},
            DataError,
            "portfolio: snapshot small has no bar of ZZZ up to 2018-01-02: freeze them too",
        ),
        (
            {"currency": "EUR"},
            UsageError,
            "portfolio: AAA is priced in USD in snapshot small, and the book is in EUR",
        ),
        # AAA closes at 130.74 on 2018-01-02: 10 times that and a hundredth are refused.
        (
            {"positions": [{"ticker": "AAA", "shares": 1, "price": 1307.4}]},
            UsageError,
            "portfolio: AAA at 1307.4 is far from its close of 130.74 on 2018-01-02 in snapshot",
        ),
        (
            {"positions": [{"ticker": "AAA", "shares": 1, "price": 1.3074}]},
            UsageError,
            "portfolio: AAA at 1.3074 is far from its close of 130.74 on 2018-01-02 in snapshot",
        ),
        # A Monday holiday: the close of the Friday before.
        (
            {"as_of": "2018-01-01", "positions": [{"ticker": "AAA", "shares": 1, "price": 1.0}]},
            UsageError,
            "portfolio: AAA at 1 is far from its close of 132.15 on 2017-12-29 in snapshot",
        ),
        (
            {"as_of": "2016-12-30"},
            DataError,
            "portfolio: snapshot small has no bar of AAA, BBB up to 2016-12-30: freeze them too",
        ),
    ],
)
def test_a_book_that_the_snapshot_contradicts_is_refused(
    changes: dict[str, Any], kind: type[Exception], said: str, workspace: Workspace
) -> None:
    config = workspace.config(**DATES, portfolio={**STATED, **changes})
    with pytest.raises(kind) as caught:
        lay_out(config, workspace.snapshot, fingerprint="f")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_price_of_up_to_twice_or_half_the_close_is_taken(workspace: Workspace) -> None:
    for price in (130.74 * 2, 130.74 / 2):
        held = {"ticker": "AAA", "shares": 1, "price": price}
        config = workspace.config(**DATES, portfolio={**STATED, "positions": [held]})
        assert lay_out(config, workspace.snapshot, fingerprint="f").cells == 6


def test_a_book_without_a_day_is_held_against_the_close_before_decisions_at_the_open(
    workspace: Workspace,
) -> None:
    held = {"ticker": "AAA", "shares": 1, "price": 1.0}
    book = {"currency": "USD", "cash": 0.0, "positions": [held]}
    for time, day in (("close", "2018-01-05"), ("open", "2018-01-04")):
        config = workspace.config(**DATES, decision_time=time, portfolio=book)
        with pytest.raises(UsageError, match=f" on {day} in snapshot"):
            lay_out(config, workspace.snapshot, fingerprint="f")


def test_one_decision_is_made_on_a_snapshot_that_lacks_other_positions(
    workspace: Workspace,
) -> None:
    held = {"ticker": "ZZZ", "shares": 1, "price": 1.0}
    config = workspace.config(**DATES, portfolio={**STATED, "positions": [held]})
    assert lay_out(config, workspace.snapshot, fingerprint="f", scored=False).cells == 6


def test_a_record_of_before_there_were_books_still_reads(tmp_path: Path) -> None:
    cell = make_cell()
    text = encode(cell)[17:-1].decode().replace(',"book_hash":""', "")
    assert "book_hash" not in text
    lines = ['{"kind":"header","record":{"format":1}}', text]
    marks = [hashlib.sha256(line.encode()).hexdigest()[:16] for line in lines]
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(f"{m} {line}\n" for m, line in zip(marks, lines, strict=True)))
    assert read_ledger(journal).cells == {cell.key: cell}


def test_the_root_knows_the_book_and_is_as_ever_without_one() -> None:
    bare, shown, other = Ledger(), Ledger(), Ledger()
    bare.add(make_cell())
    shown.add(make_cell(book_hash="b" * 64))
    other.add(make_cell(book_hash="c" * 64))
    assert len({results_root(ledger) for ledger in (bare, shown, other)}) == 3


# ----------------------------------------------------------------------------- at the command line


def test_run_plan_and_analyze_take_the_file(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workspace.path)
    write(workspace.path / "book.json", STATED)
    where = ("--snapshot", "small", "--benchmark", "^GSPC", "--portfolio", "book.json")
    dates = ("--tickers", "AAA", "--start", "2018-01-02", "--end", "2018-01-12", "--horizon", "3")
    assert cli.run(["plan", *where, *dates]) == 0
    capsys.readouterr()
    assert cli.run(["run", *where, *dates, "--set", "score_at_end=false"]) == 0
    assert "note: the portfolio is shown as it stands on every date" in capsys.readouterr().err
    assert cli.run(["show", "latest"]) == 0
    assert "the user's own of 2018-01-02, 2 positions: shown as it" in capsys.readouterr().out
    assert cli.run(["analyze", "AAA", "2018-01-12", *where, "--memory", "off"]) == 0
    capsys.readouterr()

    assert cli.run(["sql", "SELECT count(*) AS n FROM cells WHERE book_hash IS NOT NULL"]) == 0
    assert "2" in capsys.readouterr().out
    assert cli.run(["transcript", "latest", "AAA", "2018-01-12"]) == 0
    assert "AAA | 100.0000 | 172.5000" in capsys.readouterr().out
    assert cli.run(["run", *where[:-1], "gone.json", *dates]) == 2
    assert capsys.readouterr().err.strip() == (
        "error: portfolio 'gone.json' does not exist: check the path"
    )
