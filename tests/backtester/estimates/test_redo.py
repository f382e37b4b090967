"""What a resume decides again is told before it starts, with its worst case."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from backtester.backtest import run
from backtester.cli.render import redone_words
from backtester.config import RunConfig
from backtester.spending.ledger import read_spend
from backtester.spending.tariff import Price, Tariff
from backtester.walk.plan import Plan
from backtester.walk.progress import Silent, Standing
from tests.support.openai_server import Act, OpenAIServer, Received, error
from tests.support.rulebook_server import Fault, by_the_rules, faulty
from tests.support.workspaces import Workspace, make_workspace

KEYS = {"openai_compatible": "sk-TEST-SECRET-123"}
PRICE = Price(input_per_million=1.0, output_per_million=2.0)
TARIFF = Tariff(prices={f"openai_compatible:{name}": PRICE for name in ("stub-quick", "stub-deep")})


class Told(Silent):
    """Keep what is told at the start."""

    def __init__(self) -> None:
        self.standing = Standing(kept=0, failed=0, affected=0)

    def started(self, plan: Plan, standing: Standing) -> None:
        self.standing = standing


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def config_for(workspace: Workspace, server: OpenAIServer, **changes: Any) -> RunConfig:
    return workspace.wired(
        server.url,
        **{
            "analysts": ("market",),
            "end": date(2018, 1, 12),
            "cell_retries": 1,
            "max_tokens": 500,
            **changes,
        },
    )


def test_failed_cells_and_those_that_follow_are_told_with_a_bound_that_holds(
    workspace: Workspace,
) -> None:
    refused = Fault(
        role="Portfolio Manager",
        day="2018-01-05",
        symbol="AAA",
        acts=[error(400, "no")] * 2,
    )
    first, second, third = Told(), Told(), Told()
    with OpenAIServer(faulty(refused)) as server:
        config = config_for(workspace, server)
        result = run(config, api_keys=KEYS, tariff=TARIFF, progress=first)
        before = len(read_spend(result.folder / "spend.jsonl"))
        run(config, api_keys=KEYS, tariff=TARIFF, progress=second)
        run(config, api_keys=KEYS, tariff=TARIFF, progress=third)
    spent = read_spend(result.folder / "spend.jsonl")[before:]
    told = second.standing
    assert (first.standing.failed, first.standing.calls) == (0, 0)
    # Its own cutoff is shared by a cell that keeps its lessons; the next one has two cells.
    assert (told.kept, told.failed, told.affected, told.lessons) == (4, 1, 2, 0)
    # The failed one as the graph has it, 7 + 1 + 1 + 3 + 3 + 1 + 1 + 1 + 3; of the two that follow
    # the portfolio manager alone; each of the three may be tried twice, and has a lesson.
    assert told.calls == 2 * (21 + 2 * 3) + 3
    assert told.unknown == ""
    assert told.cost_usd is not None
    assert 0 < len(spent) <= told.calls
    assert 0 < sum(record.cost_usd or 0.0 for record in spent) <= told.cost_usd
    # Nothing is left to do again.
    assert third.standing.failed == 0


def test_a_lesson_that_failed_is_told_with_the_cells_that_would_be_shown_it(
    workspace: Workspace,
) -> None:
    refusals = [error(400, "no")]

    def answer(received: Received) -> Act:
        # The first lesson that is asked for is of AAA on 2018-01-05.
        reflects = received.body["messages"][0]["content"].startswith("Role: Reflector")
        return refusals.pop() if reflects and refusals else by_the_rules(received)

    told = Told()
    with OpenAIServer(answer) as server:
        config = config_for(workspace, server)
        run(config, api_keys=KEYS, tariff=TARIFF)
        run(config, api_keys=KEYS, tariff=Tariff(), progress=told)
    assert (told.standing.failed, told.standing.lessons, told.standing.affected) == (0, 1, 2)
    assert told.standing.calls == 2 * 2 * 3 + 2 + 1
    assert told.standing.cost_usd is None
    assert "the price of openai_compatible:stub-deep is unknown" in told.standing.unknown


def test_the_words_name_number_and_worst_case() -> None:
    standing = Standing(kept=9, failed=2, affected=3, lessons=1, calls=57, cost_usd=0.25)
    assert redone_words(standing) == (
        "2 failed cells are decided again and 1 lessons that failed are written again, and after "
        "them at most 3 later cells whose lessons may change; worst case: 57 calls, 0.2500 USD"
    )
    unknown = Standing(
        kept=9, failed=2, affected=0, calls=57, cost_usd=None, unknown="nothing limits a reply"
    )
    assert redone_words(unknown).endswith(
        "worst case: 57 calls, of unknown cost (nothing limits a reply)"
    )
