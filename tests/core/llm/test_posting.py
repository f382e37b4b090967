"""One JSON request, and whatever may come back."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.openai_server import Act, OpenAIServer
from tests.support.provider_wires import root_of
from tradingagents_core.llm.patience import MOST_BYTES, Patience
from tradingagents_core.llm.posting import Door, post
from tradingagents_core.llm.reading import MalformedReply
from tradingagents_core.llm.replaying import CallFailed, LiveReply
from tradingagents_core.protocols import Reply

SECRET = "sk-TEST-SECRET-123"


def read(text: str) -> Reply:
    if text == "{}":
        raise MalformedReply("nothing in it")
    return Reply(text=text)


def posted(*script: Act, retries: int = 0, url: str | None = None, **changes: Any) -> LiveReply:
    with OpenAIServer(*script) as server:
        fields: dict[str, Any] = {
            "url": url or f"{root_of(server)}/say",
            "headers": {"x-key": SECRET},
            "secrets": (SECRET, "OTHER-SECRET-456"),
            "timeout_s": 5.0,
            "transport": "open",
            **changes,
        }
        patience = Patience(max_retries=retries, budget_s=30.0)
        return post(Door(**fields), {"a": 1}, read, patience)


def failed(*script: Act, **changes: Any) -> CallFailed:
    with pytest.raises(CallFailed) as failure:
        posted(*script, **changes)
    return failure.value


def error(status: int, body: Any, **headers: str) -> Act:
    return Act(status=status, body=body, headers=headers)


def test_the_text_comes_back_as_it_was_sent_but_for_the_secret() -> None:
    assert posted(Act(body='{"é": 1 }')).reply.text == '{"é": 1 }'
    assert posted(Act(body=f'"{SECRET}"')).reply.text == '"[API key]"'


def test_an_answer_that_cannot_be_read_is_a_failure_and_not_tried_again() -> None:
    failure = failed(Act(body={}), retries=3)
    assert (failure.kind, failure.message, failure.retries) == ("transport", "nothing in it", 0)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no such field", "code": 400}},
        [{"error": {"message": "no such field"}}],
        {"message": "no such field"},
        "no such field",
    ],
)
def test_the_words_of_an_error_are_found_where_providers_put_them(body: Any) -> None:
    failure = failed(error(400, body))
    assert failure.message == "the provider answered 400: no such field"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {}, "rejected"),
        (404, {}, "rejected"),
        (422, {}, "rejected"),
        (400, {"error": {"code": "content_filter", "message": "x"}}, "content_filter"),
        (400, {"error": {"message": "blocked by content filtering policy"}}, "content_filter"),
        (301, {}, "transport"),
        (401, {}, "transport"),
        (403, {}, "transport"),
        (424, {}, "transport"),
        (429, {}, "transport"),
        (500, {}, "transport"),
        (529, {}, "transport"),
    ],
)
def test_what_a_status_means(status: int, body: Mapping[str, Any], kind: str) -> None:
    assert failed(error(status, body)).kind == kind


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_told_and_not_followed(status: int) -> None:
    with OpenAIServer(Act(body="1")) as elsewhere:
        place = f"{root_of(elsewhere)}/say?key={SECRET}"
        failure = failed(error(status, {}, location=place), retries=3)
        assert elsewhere.connections == 0
    assert (failure.kind, failure.retries) == ("transport", 0)
    assert failure.message == (
        f"the provider answered {status}: it points to {root_of(elsewhere)}/say?key=[API key], "
        "and no redirect is followed: set base_url to where it is"
    )


@pytest.mark.parametrize("status", [424, 429, 503, 529])
def test_what_passes_by_waiting_is_tried_again_and_counted(status: int) -> None:
    script = (error(status, {}, **{"retry-after": "0"}),) * 2
    assert posted(*script, Act(body="1"), retries=2).retries == 2
    assert failed(*script, retries=1).retries == 1


def test_a_port_without_a_server_is_said_without_the_secret() -> None:
    failure = failed(Act(), url=f"http://127.0.0.1:1/{SECRET}")
    assert failure.message.startswith("the provider cannot be reached")
    assert SECRET not in failure.message


def test_a_secret_at_the_end_of_what_is_quoted_is_blanked_before_it_is_cut() -> None:
    for secret in (SECRET, "OTHER-SECRET-456"):
        failure = failed(error(400, "x" * 490 + secret))
        assert "SECRET" not in failure.message


def test_a_key_that_no_header_can_hold_is_a_failure_in_words() -> None:
    failure = failed(Act(body="1"), headers={"x-key": "sk-schl\u00fcssel\u2713"})
    assert failure.message == "the API key holds a sign that no header can: copy it anew"


def test_the_largest_answer_is_counted_as_it_unpacks() -> None:
    packed = {"content-encoding": "gzip"}
    fits = gzip.compress(b'"' + b" " * (MOST_BYTES - 2) + b'"', compresslevel=1)
    bomb = gzip.compress(b'"' + b" " * MOST_BYTES + b'"', compresslevel=1)
    assert len(posted(Act(body=fits, headers=packed)).reply.text) == MOST_BYTES
    failure = failed(Act(body=bomb, headers=packed), retries=3)
    assert (failure.message, failure.retries) == ("the answer is larger than 32 MB", 0)
    failure = failed(Act(body=b"no gzip", headers=packed))
    assert (failure.kind, failure.lost) == ("transport", True)


def test_a_replay_lets_nothing_out() -> None:
    failure = failed(Act(body="1"), transport="refuse")
    assert "replay: no request to 127.0.0.1" in failure.message
