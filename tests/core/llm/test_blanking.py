"""A key is blanked in every spelling in which a provider might send it back."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradingagents_core.llm.reading import BLANKED, blank

KEYS = ["sk-TEST-SECRET-123", 'a/b+c=d e\\f"üxyz', "\\\\\\abcdef", "50%25off-key"]


def everywhere(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


SPELLINGS = {
    "as it is": str,
    "in JSON": lambda key: json.dumps(key)[1:-1],
    "in JSON inside JSON": lambda key: json.dumps(json.dumps(key)[1:-1])[1:-1],
    "in an address": lambda key: quote(key, safe=""),
    "in an address inside an address": lambda key: quote(quote(key, safe=""), safe=""),
    "percent-encoded throughout": everywhere,
    "percent-encoded in small letters": lambda key: everywhere(key).lower(),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_is_blanked_whole(spelling: str, key: str) -> None:
    assert blank(f"<{SPELLINGS[spelling](key)}>", key) == f"<{BLANKED}>"


@given(
    key=st.text(min_size=6, max_size=40),
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
)
def test_base64_of_a_text_that_holds_the_key_cannot_be_read_any_more(
    key: str, before: bytes, after: bytes
) -> None:
    whole = before + key.encode() + after
    plain = base64.b64encode(whole).decode()
    forms = [
        plain,
        base64.urlsafe_b64encode(whole).decode(),
        quote(plain, safe=""),
        plain.replace("/", "\\/"),
    ]
    for form in forms:
        kept = blank(f"Basic {form} end", key).removeprefix("Basic ").removesuffix(" end")
        left, found, right = kept.partition(BLANKED)
        assert found, form
        # A sign holds six bits: what is left beside the key shares at most one byte with it.
        assert len(left) <= -(-len(before) * 8 // 6) * (3 if "%" in form else 2)
        assert form.endswith(right)


@given(st.text(max_size=200))
def test_a_text_without_the_key_stays_as_it_is(text: str) -> None:
    assert blank(text, "sk-TEST-SECRET-123") == text
