"""Whatever logs, and however, a key that a model was made with is not in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace

import httpx2
import pytest

from tests.support import openai_server as wire
from tests.support.openai_server import OpenAIServer
from tradingagents_core.llm import logs
from tradingagents_core.llm.factory import create_model
from tradingagents_core.llm.logs import keep_out_of_logs
from tradingagents_core.settings import ModelSpec

KEY = "sk-TEST-SECRET-123"
LOG = logging.getLogger("some.library")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    factory = logging.getLogRecordFactory()
    monkeypatch.setattr(logs, "_KEYS", [])
    yield
    logging.setLogRecordFactory(factory)


def test_a_key_is_blanked_in_message_and_arguments(caplog: pytest.LogCaptureFixture) -> None:
    keep_out_of_logs(KEY)
    LOG.warning(f"with {KEY}")
    LOG.warning("%s and %r", KEY, {"authorization": f"Bearer {KEY}"})
    LOG.warning("no key in %d words", 5)

    assert caplog.messages == [
        "with [API key]",
        "[API key] and {'authorization': 'Bearer [API key]'}",
        "no key in 5 words",
    ]
    # What holds no key keeps its arguments, for handlers that look at them.
    assert caplog.records[2].args == (5,)


def test_a_key_is_blanked_in_the_traceback_of_an_error(caplog: pytest.LogCaptureFixture) -> None:
    keep_out_of_logs(KEY)
    try:
        raise ValueError(f"refused {KEY}")
    except ValueError:
        LOG.exception("it failed")

    assert "ValueError: refused [API key]" in caplog.text
    assert KEY not in caplog.text


def test_two_keys_are_two_keys_and_one_is_put_in_once(caplog: pytest.LogCaptureFixture) -> None:
    for key in (KEY, "another-key", KEY):
        keep_out_of_logs(key)
    factory = logging.getLogRecordFactory()
    keep_out_of_logs("a-third-key")
    LOG.warning("%s another-key a-third-key", KEY)

    assert caplog.messages == ["[API key] [API key] [API key]"]
    assert logging.getLogRecordFactory() is factory


def test_a_factory_from_before_still_makes_the_records(caplog: pytest.LogCaptureFixture) -> None:
    class Marked(logging.LogRecord):
        mark = "ours"

    logging.setLogRecordFactory(Marked)
    keep_out_of_logs(KEY)
    LOG.warning(KEY)

    assert [(record.message, record.mark) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("[API key]", "ours")
    ]


def test_arguments_that_do_not_fit_are_left_to_the_handler() -> None:
    keep_out_of_logs(KEY)
    record = LOG.makeRecord("x", logging.INFO, "file", 1, "%d", ("word",), None)
    assert (record.msg, record.args) == ("%d", ("word",))


def test_a_clients_debug_log_of_an_answers_headers_holds_no_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = wire.Act(body=wire.text("Hold.").body, headers={"x-request-id": f"req-{KEY}"})
    with OpenAIServer(answer) as server, caplog.at_level(logging.DEBUG):
        spec = ModelSpec(provider="openai_compatible", model="m", base_url=server.url)
        create_model(spec, api_key=KEY).invoke("Rate FB.")
        httpx2.post(server.url, json={})

    assert "req-[API key]" in caplog.text
    assert KEY not in caplog.text


def test_the_credentials_that_aws_finds_are_keys_too(caplog: pytest.LogCaptureFixture) -> None:
    bedrock = pytest.importorskip("tradingagents_core.llm.bedrock_chat", exc_type=ImportError)
    found = SimpleNamespace(access_key="AKIA-TEST-1", secret_key="secret-of-aws", token="session-1")

    assert len(list(bedrock._secrets(SimpleNamespace(get_credentials=lambda: found), None))) == 3
    LOG.warning("signed by %s with %s, token %s", *vars(found).values())

    assert caplog.messages == ["signed by [API key] with [API key], token [API key]"]
