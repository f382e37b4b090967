"""Keys are for ever: an upgrade of a library, or an edit of ours, must not make recordings misses.

`scripts/key_stability.py` compares the same calls under other versions of the client library.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.key_calls import PROMPT, TALK, fixed_keys, key_of, model, rebuilt_key
from tradingagents_core.llm.keys import call_key, key_document
from tradingagents_core.protocols import Site

GOLDEN = json.loads(Path(__file__).with_name("golden_keys.json").read_text(encoding="utf-8"))


def test_known_calls_have_the_keys_that_they_always_had() -> None:
    assert fixed_keys() == GOLDEN


def test_ways_of_saying_the_same_share_a_key_and_no_others_do() -> None:
    assert GOLDEN["tools as JSON"] == GOLDEN["tools bound"]
    assert GOLDEN["schema as a class"] == GOLDEN["structured by json_schema"]
    assert len(set(GOLDEN.values())) == len(GOLDEN) - 2


@pytest.mark.parametrize("messages", [PROMPT, TALK])
@pytest.mark.parametrize(
    "fields", [{}, {"max_tokens": 100, "limit_field": "max_tokens"}, {"max_tokens": 9}]
)
def test_a_recorded_request_whose_messages_are_built_anew_leads_to_its_key(
    messages, fields
) -> None:
    asked = model(**fields)
    document = key_document(
        asked._get_request_payload(messages),
        provider=asked.provider,
        endpoint=asked.endpoint,
        site=Site(trial=1),
        accept_truncated=True,
    )
    assert rebuilt_key(json.loads(document)) == call_key(document)
    assert call_key(document) != key_of(asked, messages)
