"""Take the facts of two companies' filings out of the SEC's files, for `build_demo_snapshot.py`.

    python scripts/extract_demo_statements.py DIR

DIR holds, for each company, what the SEC answers at these addresses (gzip may be on top), named
``companyfacts_AAPL.json`` and ``submissions_AAPL.json``, and so on:

    https://data.sec.gov/api/xbrl/companyfacts/CIK0000320193.json     Apple
    https://data.sec.gov/submissions/CIK0000320193.json
    https://data.sec.gov/api/xbrl/companyfacts/CIK0001045810.json     NVIDIA
    https://data.sec.gov/submissions/CIK0001045810.json

Out come two small tables beside this script, of the filings and of their facts, each as filed and
none worked out. The snapshot is built from these, so that no network is needed for it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from backtester.vendors.sec_facts import Fact, facts_of
from backtester.vendors.sec_items import SEC_ITEMS

HERE = Path(__file__).resolve().parent / "demo_statements"
COMPANIES = {"AAPL": 320_193, "NVDA": 1_045_810}
# A year before the snapshot's first session: its first decisions have four quarters of a past.
FIRST, LAST = date(2012, 1, 1), date(2018, 12, 31)
# The key figures, by the product's names: what ratios need, and what a reader asks for first.
ITEMS = frozenset(
    {
        "revenue",
        "gross_profit",
        "research_and_development",
        "operating_income",
        "net_income",
        "eps_diluted",
        "shares_diluted",
        "cash",
        "total_assets",
        "long_term_debt",
        "total_liabilities",
        "equity",
        "operating_cash_flow",
        "capital_expenditure",
        "dividends_paid",
        "share_repurchases",
        "shares_outstanding",
    }
)
FILINGS_NOTE = """\
# Annual and quarterly reports that Apple Inc. and NVIDIA Corporation filed with the SEC from
# 2012-01-01 to 2018-12-31: public filings, listed by this project from the SEC's submissions files.
# `accepted` is the acceptance time as the SEC writes it, clock and all; empty where the list that
# was at hand does not reach back to the filing, which then counts from the end of its day.
"""
FACTS_NOTE = """\
# Key figures of those reports as they were filed, one fact a line: facts from public filings
# (XBRL, SEC companyfacts files), compiled by this project. `filing` is the number of the report in
# filings.csv; `start` is empty for a balance and for the share count on a cover.
"""
FILING_COLUMNS = ("filing", "company", "accession", "form", "filed", "accepted")
FACT_COLUMNS = ("filing", "tag", "unit", "start", "end", "value")


@dataclass(frozen=True, kw_only=True)
class Extract:
    """Hold the text of both tables."""

    filings: str
    facts: str


def extract(folder: Path) -> Extract:
    """Return both tables from the SEC's files in a folder."""
    filings: list[Sequence[object]] = []
    facts: list[Sequence[object]] = []
    for company in COMPANIES:
        accepted = _accepted(_read(folder, f"submissions_{company}"))
        held = _wanted(facts_of(_read(folder, f"companyfacts_{company}"), company))
        for report in sorted({(fact.filed, fact.accession, fact.form) for fact in held}):
            filed, accession, form = report
            number = len(filings) + 1
            filings.append((number, company, accession, form, filed, accepted.get(accession, "")))
            facts += [(number, *line) for line in _lines(held, accession)]
    return Extract(
        filings=FILINGS_NOTE + _table(FILING_COLUMNS, filings),
        facts=FACTS_NOTE + _table(FACT_COLUMNS, facts),
    )


def _wanted(facts: Iterable[Fact]) -> list[Fact]:
    tags = {name for item in SEC_ITEMS if item.item in ITEMS for name in item.tags}
    return [
        fact for fact in facts if (fact.taxonomy, fact.tag) in tags and FIRST <= fact.filed <= LAST
    ]


def _lines(facts: Iterable[Fact], accession: str) -> list[Sequence[object]]:
    found = {
        (f"{fact.taxonomy}:{fact.tag}", fact.unit, fact.start or "", fact.end, _number(fact.value))
        for fact in facts
        if fact.accession == accession
    }
    return sorted(found, key=lambda line: tuple(map(str, line)))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _accepted(body: Mapping[str, Any]) -> dict[str, str]:
    recent = body["filings"]["recent"]
    return dict(zip(recent["accessionNumber"], recent["acceptanceDateTime"], strict=True))


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _read(folder: Path, stem: str) -> Any:
    packed = folder / f"{stem}.json.gz"
    if packed.is_file():
        return json.loads(gzip.decompress(packed.read_bytes()))
    return json.loads((folder / f"{stem}.json").read_bytes())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(description="Extract the facts of the demo's statements.")
    parser.add_argument("folder", type=Path, help="folder with the SEC's files")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    try:
        made = extract(options.folder)
    except (OSError, KeyError, ValueError) as error:
        print(f"extract_demo_statements: {error}", file=sys.stderr)
        return 3
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "filings.csv").write_text(made.filings, encoding="utf-8")
    (options.out / "facts.csv").write_text(made.facts, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
