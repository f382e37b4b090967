"""Anybody's vendor can be put through the rules of vendors, on the command line and in Python."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from backtester.cli import run
from backtester.errors import UsageError
from backtester.freeze.check import RULES, check_vendor, tables_of
from backtester.freeze.freezing import FreezePlan, settings_from
from backtester.vendors.base import NotConfigured

VENDOR = """
from datetime import UTC, datetime
import pyarrow as pa
from backtester.errors import UsageError
from backtester.schema import TABLES
from backtester.vendors.base import Capture, NoData

class Vendor:
    name = "mine"
    tables = frozenset({"bars", "news"})

    def __init__(self, settings):
        pass

    def capture(self, wanted):
        if wanted.options:
            raise UsageError("there is no option")
        if wanted.symbol != "AAPL" or wanted.table == "news":
            raise NoData("none")
        row = {
            "instrument": wanted.instrument, "session": wanted.start, "currency": "USD",
            "open": 1.0, "high": 1.0, "low": 1.0, "close": 1.0, "volume": 5,
            "known_at": datetime(2024, 3, 4, 21, tzinfo=UTC),
        }
        rows = pa.Table.from_pylist([row], schema=TABLES["bars"].arrow)
        return Capture(rows={"bars": rows}, source="a book", licence="mine")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"own_vendor_{request.node.name}"
    (tmp_path / f"{name}.py").write_text(VENDOR)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return name


def check(vendor: str, *more: str) -> int:
    words = ["freeze", "--check-vendor", vendor, "--symbols", "AAPL"]
    return run([*words, "--start", "2024-03-04", "--end", "2024-03-05", *more])


def test_a_vendor_that_keeps_the_rules_is_told_so_and_nothing_is_stored(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(f"{module}:Vendor") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"bars of AAPL: keeps all {len(RULES)} rules",
        "news of AAPL: not judged, it has none: none",
    ]
    assert not (tmp_path / "data").exists()


def test_a_vendor_that_breaks_a_rule_is_told_which_and_the_code_is_7(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = VENDOR.replace('wanted.symbol != "AAPL" or', "").replace("21, tzinfo", "20, tzinfo")
    (tmp_path / f"{module}.py").write_text(text)
    assert check(f"{module}:Vendor", "--tables", "bars") == 7
    said = capsys.readouterr()
    broken = [line.split("'")[1] for line in said.out.splitlines()]
    assert broken == ["known_at", "stranger"]
    assert len(said.err.splitlines()) == 1


def test_a_vendor_that_has_nothing_is_not_judged_and_the_code_is_5(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(f"{module}:Vendor", "--symbols", "MSFT") == 5
    assert "name a symbol and a range that it has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("vendor", "code", "words"),
    [
        ("nobody", 2, "is not known"),
        ("no_such_module_at_all:Vendor", 2, "PYTHONPATH=."),
        ("fred", 5, "set FRED_API_KEY"),
        ("sec", 5, "set BACKTESTER_USER_AGENT"),
    ],
)
def test_a_vendor_that_cannot_be_asked_is_one_line_and_a_code(
    vendor: str,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FRED_API_KEY", "BACKTESTER_USER_AGENT"):
        monkeypatch.delenv(name, raising=False)
    assert check(vendor) == code
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert words in said[0]


def plan_for(*tables: str) -> FreezePlan:
    return FreezePlan(
        name="check",
        symbols=("AAPL",),
        start=date(2024, 3, 4),
        end=date(2024, 3, 5),
        warmup=0,
        tables=tables,
        subjects={"macro": ("cpi",)},
    )


def test_a_plan_without_a_table_of_the_vendor_is_a_wrong_question(module: str) -> None:
    now = datetime(2024, 4, 10, tzinfo=UTC)
    keys = settings_from({"FRED_API_KEY": "a-key-of-fred"})
    with pytest.raises(UsageError, match="fills none of"):
        check_vendor("fred", plan_for("bars"), captured_at=now, settings_of=keys)
    with pytest.raises(NotConfigured, match="set FRED_API_KEY"):
        check_vendor("fred", plan_for("macro"), captured_at=now, settings_of=settings_from({}))
    assert tables_of("fred") == ()
    assert tables_of("sec") == ("insider", "instruments", "statements")
