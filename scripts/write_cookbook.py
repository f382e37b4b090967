"""Run every query of docs/cookbook.md on the demo and write what it answers beneath it.

    python scripts/write_cookbook.py reports/results.duckdb

Each query stands in a block ``sql``; the block ``text`` after it is made here. The database must
hold the demo's run alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from backtester.store.query import run_sql

COOKBOOK = Path(__file__).resolve().parents[1] / "docs" / "cookbook.md"
RECIPE = re.compile(r"```sql\n(?P<query>.*?)\n```\n\n```text\n(?P<answer>.*?)```", re.DOTALL)


def answered(text: str, database: Path) -> str:
    """Return the cookbook with the answers of a database.

    Args:
        text: The cookbook.
        database: Where the queries run.
    """

    def fill(found: re.Match[str]) -> str:
        query = found["query"]
        answer = run_sql(database, query, format="table")
        lines = "\n".join(line.rstrip() for line in answer.rstrip("\n").split("\n"))
        return f"```sql\n{query}\n```\n\n```text\n{lines}\n```"

    return RECIPE.sub(fill, text)


def main(database: Path) -> None:
    """Write the cookbook anew."""
    COOKBOOK.write_text(answered(COOKBOOK.read_text(encoding="utf-8"), database), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
