"""The committed cassettes replay for ever: what is asked today leads to the keys that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtester.replies.recordings import answers_of
from tests.support.key_calls import rebuilt_key

CASSETTES = sorted((Path(__file__).parents[3] / "cassettes").glob("*.jsonl.zst"))


@pytest.mark.parametrize("path", CASSETTES, ids=lambda path: path.name)
def test_every_recorded_request_is_built_anew_to_its_own_key(path: Path) -> None:
    documents = {
        record.key: json.loads(record.request)
        for record in answers_of(path)
        if record.provider != "rulebook"
    }
    assert {key: rebuilt_key(document) for key, document in documents.items()} == {
        key: key for key in documents
    }
