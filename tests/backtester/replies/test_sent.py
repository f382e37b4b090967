"""Answers that were sent along stand before those of the cache, and change nothing in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backtester.replies.cache import ReplyCache
from backtester.replies.sent import SentCache
from tests.support.answers import make_answer, make_call


def test_what_was_sent_wins_over_what_is_there_and_is_not_written(tmp_path: Path) -> None:
    cache = ReplyCache.open(tmp_path / "replies")
    own = make_answer("own", call=make_call("a"))
    cache.add(own)
    sent = replace(own, reply=replace(own.reply, text="sent"))

    lying = SentCache.over(cache, (sent,))

    assert lying.get(own.key) == sent
    found = lying.reply(own.key, own.request)
    assert found is not None
    assert found.text == "sent"
    assert lying.add(own) == sent
    stored = cache.get(own.key)
    assert stored is not None
    assert stored.reply.text == "own"


def test_everything_else_is_read_and_written_below(tmp_path: Path) -> None:
    cache = ReplyCache.open(tmp_path / "replies")
    first, second = (make_answer(word, call=make_call(word)) for word in ("one", "two"))
    cache.add(first)

    lying = SentCache.over(cache)
    lying.add(second)

    assert lying.get(first.key) == first
    assert cache.get(second.key) == second
    assert lying.nearest(first.node, first.request) is None
