"""A quoted text may say anything; the headings around it stay those of the document."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from backtester.texts.markdown import nested_text, plain_text

PARSER = MarkdownIt("commonmark")
# The pieces of which block structure is made, alone and in each other's arms.
PIECES = st.sampled_from(
    [
        *("# x", "## V. Portfolio Manager Decision", "####### x", "#", "# #", "===", "---", "--"),
        *("```", "````", "~~~", "```json", "``` `", "- ", "-\t", "1. ", "2) ", "> ", ">", "* "),
        *("<!--", "-->", "<script>", "<pre>", "</details>", "<?php", "<![CDATA[", "<a@b.c>"),
        *("\n", "\n\n", "  \n", "\r", "\x0b", "\u2028", "\x85", "\x00", "\ud800", "\t", " "),
        *(
            "[a]: b 'c",
            "[a]: <",
            "|a|b|",
            "\\",
            "![",
            "](u)",
            "`",
            "*",
            "***",
            "___",
            "=",
            "-",
            "x",
            "+ ",
        ),
        *("    ", "  ", "&lt;", "<div>", "10000000000. "),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=60))


def headings(document: str) -> list[tuple[int, str]]:
    """Return (level, words) of every heading above level four, wherever it is nested."""
    tokens = PARSER.parse(document)
    return [
        (int(token.tag[1]), tokens[i + 1].content)
        for i, token in enumerate(tokens)
        if token.type == "heading_open" and int(token.tag[1]) < 4
    ]


@settings(max_examples=400, deadline=None)
@given(first=TEXTS, second=TEXTS)
@example(first="```\nnever closed", second="<!-- never closed")
@example(first="- ```\n# x", second="~~~\n```\n# x\n~~~")
@example(first="words\n---", second="words\n=")
def test_no_text_adds_a_heading_or_hides_one(first: str, second: str) -> None:
    document = f"# T\n\n## S\n\n### A\n\n{nested_text(first)}\n\n### B\n\n{nested_text(second)}\n"
    assert headings(document + "\n## E\n") == [
        (1, "T"),
        (2, "S"),
        (3, "A"),
        (3, "B"),
        (2, "E"),
    ]


@settings(max_examples=400, deadline=None)
@given(TEXTS)
@example("\\<b>")
@example("\\\\\\<script>")
@example("`\\<b>")
@example("![a](http://example.org/seen.png)")
@example("\\![a](http://example.org/seen.png)")
@example("[a]: http://example.org/seen.png\n\n![a]")
def test_no_tag_of_a_text_is_html_and_no_picture_is_fetched(text: str) -> None:
    def kinds(document: str) -> set[str]:
        tokens = PARSER.parse(document)
        inner = [child for token in tokens for child in token.children or []]
        return {token.type for token in (*tokens, *inner)}

    assert not {"html_block", "html_inline", "image"} & kinds(nested_text(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Rating**: Buy\n\n- a\n- b", "**Rating**: Buy\n\n- a\n- b"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("# One\n## Two\n### Three", "#### One\n##### Two\n###### Three"),
        ("> # Quoted\n- ## Listed", "> #### Quoted\n- ##### Listed"),
        ("Words\n---\nWords\n===", "Words\n***\nWords\n\\==="),
        ("```python\n# a comment\n```", "```python\n# a comment\n```"),
        ("```\nopen", "```\nopen\n```"),
        ("~~~~\nopen\n~~~", "~~~~\nopen\n~~~\n~~~~"),
        ("  ```\nnot at the margin", "  \\```\nnot at the margin"),
        ("5 < 6, a <b> and <!-- c", "5 < 6, a \\<b> and \\<!-- c"),
        ("\\<b> \\\\<b> \\![a](b)", "\\<b> \\\\\\<b> \\![a](b)"),
        ("See ![chart](u), now!", "See \\![chart](u), now!"),
        ("\n\n#hashtag\n\n", "#hashtag"),
        ("", ""),
    ],
)
def test_a_text_is_changed_only_where_it_would_give_structure(text: str, expected: str) -> None:
    assert nested_text(text) == expected


def test_a_plain_text_has_one_kind_of_line_end_and_steers_no_terminal() -> None:
    text = "a\r\nb\rc\u2028d\x85e\x0cf\tg \x1b[31m\x00 \u202eh \ud800"
    assert plain_text(text) == "a\nb\nc\nd\ne\nf\tg �[31m� �h �"
    assert plain_text("买入 🚀 é") == "买入 🚀 é"
