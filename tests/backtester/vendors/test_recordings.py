"""Vendors replayed from their recordings, without a network and without a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from vcr.errors import CannotOverwriteExistingCassetteException
from vcr.request import Request

from backtester.vendors.base import VendorSettings
from tests.backtester.vendors.recordings import (
    ADDRESS,
    FOLDER,
    RECORDINGS,
    captured,
    record,
    tape,
)
from tests.support.page_server import PageServer, settings_for
from tests.support.vendor_trouble import SECRET

OFFLINE = VendorSettings(
    api_key=SECRET, base_url=ADDRESS, max_retries=0, sleep=lambda seconds: None
)


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_gives_the_rows_that_the_server_gave(name: str) -> None:
    recording = RECORDINGS[name]
    with PageServer(recording.answer) as server:
        live = captured(recording, settings_for(server, api_key=SECRET))
    with tape(name) as played:
        again = captured(recording, OFFLINE)
        assert played.all_played
    assert again.rows == live.rows
    assert (again.notes, again.dropped_undated) == (live.notes, live.dropped_undated)
    assert sum(table.num_rows for table in again.rows.values()) >= 2


@pytest.mark.parametrize("name", RECORDINGS)
def test_another_question_gets_no_recorded_answer(name: str) -> None:
    with tape(name), pytest.raises(CannotOverwriteExistingCassetteException):
        captured(RECORDINGS[name].other, OFFLINE)


def test_another_body_gets_no_recorded_answer(tmp_path: Path) -> None:
    def asked(body: bytes) -> Request:
        return Request("POST", f"{ADDRESS}/graphql", body, {})

    answer = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": b"{}"}}
    with tape("posted", folder=tmp_path, record=True) as recorded:
        recorded.append(asked(b"one"), answer)
    with tape("posted", folder=tmp_path) as played:
        assert played.can_play_response_for(asked(b"one"))
        assert not played.can_play_response_for(asked(b"two"))


def test_no_recording_holds_a_key_an_address_or_a_header_of_a_request() -> None:
    for name in RECORDINGS:
        text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
        assert SECRET not in text
        assert "api_key" not in text
        assert "127.0.0.1" not in text
        # Who asks EDGAR says so with a name and an address of e-mail.
        assert "example.org" not in text
        assert "headers: {}" in text


def test_a_recording_made_anew_has_the_same_bytes(tmp_path: Path) -> None:
    made = record(tmp_path)
    stale = [file.name for file in made if file.read_bytes() != (FOLDER / file.name).read_bytes()]
    assert stale == [], "make them anew: python -m tests.backtester.vendors.recordings"
    assert [file.stem for file in made] == list(RECORDINGS)
