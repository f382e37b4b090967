"""What may pass is tried again, as long as retries and the budget last, and counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tradingagents_core.errors import PipelineError
from tradingagents_core.llm.patience import (
    MayPass,
    Patience,
    asked_wait_s,
    may_pass,
    persist,
)
from tradingagents_core.llm.replaying import CallFailed
from tradingagents_core.protocols import Reply

REPLY = Reply(text="ok")
BUSY = CallFailed("transport", "busy")


class Server:
    """Answer by a script, and write down how long each wait was."""

    def __init__(self, *script: Reply | Exception) -> None:
        self._script: Iterator[Reply | Exception] = iter(script)
        self.waits: list[float] = []

    def attempt(self) -> Reply:
        act = next(self._script)
        if isinstance(act, Exception):
            raise act
        return act

    def persist(self, *, max_retries: int = 9, budget_s: float = 100.0) -> Reply:
        patience = Patience(max_retries=max_retries, budget_s=budget_s)
        answered = persist(self.attempt, patience, seed=b"x", pause=self.waits.append)
        assert answered.retries == len(self.waits)
        return answered.reply


def test_waits_double_and_are_spread_below_their_bound() -> None:
    server = Server(*[MayPass(BUSY)] * 8, REPLY)
    assert server.persist() == REPLY
    bounds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    for wait, bound in zip(server.waits, bounds, strict=True):
        assert 0.75 * bound <= wait <= bound
    assert len({wait / bound for wait, bound in zip(server.waits, bounds, strict=True)}) == 8


def test_a_server_s_own_wait_is_kept_to() -> None:
    server = Server(MayPass(BUSY, wait_s=3.0), MayPass(BUSY, wait_s=0.0), REPLY)
    assert server.persist() == REPLY
    assert server.waits == [3.0, 0.0]


class Ledger:
    """Write down what is lost, and allow so many further tries."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.losses: list[bool] = []

    def lost(self, *, again: bool) -> None:
        self.losses.append(again)
        if again and len(self.losses) > self.allowed:
            raise PipelineError("no more")


def test_what_may_be_billed_unheard_is_counted_before_it_is_sent_again() -> None:
    silence = MayPass(CallFailed("transport", "silence", lost=True))

    def tried(*script: Exception | Reply, allowed: int = 9) -> Ledger:
        ledger, server = Ledger(allowed), Server(*script)
        patience = Patience(max_retries=2, budget_s=100.0)
        try:
            persist(server.attempt, patience, seed=b"x", meter=ledger, pause=lambda _: None)
        except CallFailed as failed:
            ledger.losses.append(failed.lost)
        return ledger

    assert tried(silence, MayPass(BUSY), REPLY).losses == [True]
    # The third is the last, and its failure says so too.
    assert tried(silence, silence, silence).losses == [True, True, False, True]
    with pytest.raises(PipelineError, match="no more"):
        tried(silence, silence, REPLY, allowed=1)


def test_retries_end_and_the_failure_says_how_many_there_were() -> None:
    server = Server(*[MayPass(CallFailed("transport", "busy"))] * 3)
    with pytest.raises(CallFailed, match="busy") as failed:
        server.persist(max_retries=2)
    assert failed.value.retries == 2


def test_no_retry_begins_after_the_budget() -> None:
    server = Server(MayPass(CallFailed("transport", "busy"), wait_s=101.0))
    with pytest.raises(CallFailed, match="busy") as failed:
        server.persist(budget_s=100.0)
    assert (failed.value.retries, server.waits) == (0, [])


def test_a_final_failure_is_not_tried_again_and_keeps_the_count() -> None:
    server = Server(MayPass(BUSY, wait_s=0.0), CallFailed("rejected", "no"))
    with pytest.raises(CallFailed, match="no") as failed:
        server.persist()
    assert failed.value.retries == 1


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Fri, 15 Jun 2018 20:00:30 GMT"}, None),
        (
            {
                "retry-after": "Fri, 15 Jun 2018 20:00:30 GMT",
                "date": "Fri, 15 Jun 2018 20:00:00 GMT",
            },
            30.0,
        ),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read_in_each_form(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert asked_wait_s(headers) == wait_s


@pytest.mark.parametrize(
    ("status", "said", "passes"),
    [
        (429, "", True),
        (408, "", True),
        (409, "", True),
        (500, "", True),
        (503, "", True),
        (400, "", False),
        (401, "", False),
        (404, "", False),
        (500, "false", False),
        (404, "true", True),
    ],
)
def test_a_status_says_what_may_pass_unless_the_server_does(
    status: int, said: str, passes: bool
) -> None:
    assert may_pass(status, {"x-should-retry": said}) is passes
