"""Write what each role of the rulebook model says, from the figures in its prompt and nothing else.

Every text is fixed words around figures quoted as the prompt gave them, so equal prompts give
equal bytes on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tradingagents_core.llm.rulebook_prompt import SNAPSHOT_TOOL, Prompt, ToolAnswer
from tradingagents_core.llm.rulebook_rules import (
    Assessment,
    Finding,
    assess,
    volatility_rule,
)
from tradingagents_core.llm.rulebook_statements import key_figures, newest_period

KEY_FIGURES_TOOL = "get_fundamentals"
QUOTED_LINES = 4
QUOTED_WIDTH = 160
RULES = ("trend", "momentum", "oscillator", "drawdown")

_POINT_LINE = re.compile(r"^- ([a-z]+): (.+) \(([+-]1)\)$", re.MULTILINE)
_TALLY_LINE = re.compile(r"^Tally: (\d+) for, (\d+) against", re.MULTILINE)
_PRICE_ROW = re.compile(r"^(\d{4}-\d\d-\d\d),[^,\n]*,[^,\n]*,[^,\n]*,([^,\n]*),", re.MULTILINE)
_VALUE_ROW = re.compile(r"^(\d{4}-\d\d-\d\d): (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Side:
    """Name one side of the first debate.

    Attributes:
        name: What this side is called in its own text.
        opponent: What it calls the other side.
        sign: +1 argues from the positive points, -1 from the negative ones.
    """

    name: str
    opponent: str
    sign: int


SIDES: Mapping[str, Side] = {
    "Bull Researcher": Side(name="bull", opponent="bear", sign=1),
    "Bear Researcher": Side(name="bear", opponent="bull", sign=-1),
}


def market_report(prompt: Prompt) -> str:
    """Write the market report: the verified figures, one a line, then what they say."""
    lines = [f"Market report on {_subject(prompt)}.", ""]
    figures = prompt.figures
    if figures.texts:
        lines.append("Figures of the verified snapshot:")
        lines += [f"{key}: {text}" for key, text in figures.texts.items()]
    else:
        lines.append(f"No verified figures: {_why_no_figures(prompt)}.")
    lines.append("")
    lines += [_series_read(answer) for answer in prompt.tools if answer.name != SNAPSHOT_TOOL]
    lines += ["", in_words(assess(figures))]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def gathered_report(prompt: Prompt) -> str:
    """Write the report of an analyst without rules: what its tools gave, or why they did not."""
    title = prompt.role.removesuffix(" Analyst") or "Short"
    lines = [f"{title} report on {_subject(prompt)}.", ""]
    answered = 0
    for answer in prompt.tools:
        reason = answer.missing_reason
        if reason is not None:
            lines.append(f"{answer.name}: not available ({_one_line(reason)})")
        elif answer.text.strip():
            answered += 1
            lines += _quoted(answer)
        else:
            lines.append(f"{answer.name}: no answer")
    lines += ["", _closing(len(prompt.tools), answered)]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def fundamentals_report(prompt: Prompt) -> str:
    """Write the fundamentals report: key figures, and each statement's newest period."""
    lines = [f"Fundamentals report on {_subject(prompt)}.", ""]
    answered = 0
    for answer in prompt.tools:
        reason = answer.missing_reason
        read = key_figures if answer.name == KEY_FIGURES_TOOL else newest_period
        figures = [] if reason is not None else read(answer.text)
        answered += bool(figures)
        if reason is not None:
            lines.append(f"{answer.name}: not available ({_one_line(reason)})")
        elif figures:
            lines += [f"{answer.name}:", *_ended([f"- {figure}" for figure in figures])]
        else:
            lines.append(f"{answer.name}: no figures")
    lines += ["", _closing(len(prompt.tools), answered)]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def argument(prompt: Prompt) -> str:
    """Argue one side of the first debate from the points on it, and answer the other side."""
    side = SIDES[prompt.role]
    seen = assess(prompt.figures)
    own = seen.supporting if side.sign > 0 else seen.opposing
    lines = [f"The {side.name} case on {_subject(prompt)}."]
    lines += point_lines(own)
    if not own:
        lines.append(f"No figure in the reports speaks for the {side.name} side.")
    lines.append(_tally(seen))
    if seen.missing:
        lines.append(f"Not available, so without a point: {', '.join(seen.missing)}.")
    lines.append(_answer(prompt, side, own))
    return "\n".join(lines)


def aggressive(prompt: Prompt) -> str:
    """Argue for the full size of the proposal, from the findings that agree with it."""
    seen, action = assess(prompt.figures), proposed_action(prompt)
    agreeing = _agreeing(seen, action)
    lines = [f"Aggressive view on {_subject(prompt)}: the trader proposes {action}."]
    lines += point_lines(agreeing)
    lines.append(
        f"{len(agreeing)} of {_pointed(seen)} findings with a point agree with it; "
        "a half-hearted position earns half of what is right."
    )
    lines.append(_heard(prompt, "Caution alone is no finding, so they stand as listed."))
    return "\n".join(lines)


def conservative(prompt: Prompt) -> str:
    """Argue for less risk, from the findings against the proposal and from volatility."""
    seen, action = assess(prompt.figures), proposed_action(prompt)
    against = _agreeing(seen, {"Buy": "Sell", "Sell": "Buy"}.get(action, action))
    lines = [f"Conservative view on {_subject(prompt)}: the trader proposes {action}."]
    lines += point_lines(against)
    lines.append(f"{len(against)} of {_pointed(seen)} findings with a point speak against it.")
    lines.append(_volatility_line(prompt, seen))
    lines.append(_heard(prompt, "What agrees with the proposal is already in its size."))
    return "\n".join(lines)


def neutral(prompt: Prompt) -> str:
    """Weigh both sides and say which tier the rules give, before and after volatility."""
    seen, action = assess(prompt.figures), proposed_action(prompt)
    lines = [
        f"Neutral view on {_subject(prompt)}: the trader proposes {action}.",
        _tally(seen),
        f"The score reads {seen.rating}.",
        _volatility_line(prompt, seen),
        _heard(prompt, "Each finding weighs one point, whoever brings it."),
    ]
    return "\n".join(lines)


def no_rule(prompt: Prompt) -> str:
    """Say that there is no rule for whoever asks."""
    role = prompt.role or "a prompt without a role"
    return f"The rulebook has no rule for {role}; it takes no side and has nothing to add."


SPEECHES: Mapping[str, Callable[[Prompt], str]] = {
    "Market Analyst": market_report,
    "News Analyst": gathered_report,
    "Fundamentals Analyst": fundamentals_report,
    "Bull Researcher": argument,
    "Bear Researcher": argument,
    "Aggressive Analyst": aggressive,
    "Conservative Analyst": conservative,
    "Neutral Analyst": neutral,
}


def point_lines(findings: Sequence[Finding]) -> list[str]:
    """Write findings as the list items that the other side can count, and end the list."""
    items = [f"- {finding.rule}: {finding.text} ({finding.points:+d})" for finding in findings]
    return _ended(items)


def in_words(seen: Assessment) -> str:
    """Say the findings as sentences, one for each rule, and what was missing."""
    sentences = []
    for rule in RULES:
        texts = [finding.text for finding in seen.findings if finding.rule == rule]
        if texts:
            sentences.append(f"{rule.capitalize()}: {'; '.join(texts)}.")
    if seen.missing:
        sentences.append(f"Not available, so without a point: {', '.join(seen.missing)}.")
    return "\n".join(sentences)


def score_in_words(seen: Assessment) -> str:
    """Say the score with what each rule adds to it."""
    parts = []
    for rule in RULES:
        points = sum(finding.points for finding in seen.findings if finding.rule == rule)
        parts.append(f"{rule} {signed(points)}")
    return f"score {signed(seen.score)} ({', '.join(parts)})"


def signed(points: int) -> str:
    """Write points with their sign, zero without one."""
    return f"{points:+d}" if points else "0"


def tallied_score(debate: str) -> int | None:
    """Return the score of the last tally in a debate, or None where nobody gave one."""
    tallies = _TALLY_LINE.findall(debate)
    if not tallies:
        return None
    supporting, opposing = tallies[-1]
    return int(supporting) - int(opposing)


def proposed_action(prompt: Prompt) -> str:
    """Return the action that the trader's plan declares, ``Hold`` where it declares none."""
    plan = prompt.text_of("trader_plan", "plan")
    for action in ("Buy", "Sell"):
        if f"**Action**: {action}" in plan:
            return action
    return "Hold"


def _subject(prompt: Prompt) -> str:
    return f"{prompt.instrument or 'an unnamed instrument'}, as of {prompt.date or 'no date'}"


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= QUOTED_WIDTH else flat[: QUOTED_WIDTH - 3] + "..."


def _why_no_figures(prompt: Prompt) -> str:
    for answer in reversed(prompt.tools):
        if answer.name == SNAPSHOT_TOOL:
            return _one_line(answer.missing_reason or "the snapshot's answer holds none")
    return "the snapshot tool has not been called"


def _series_read(answer: ToolAnswer) -> str:
    """Say what one price or indicator series ran from and to."""
    name = answer.args.get("indicator")
    label = f"{answer.name} ({name})" if isinstance(name, str) else answer.name
    if answer.missing_reason is not None:
        return f"{label}: not available ({_one_line(answer.missing_reason)})"
    rows = _PRICE_ROW.findall(answer.text) or _VALUE_ROW.findall(answer.text)
    if not rows:
        return f"{label}: no rows"
    (first_day, first), (last_day, last) = rows[0], rows[-1]
    return f"{label}: {len(rows)} rows, from {first} on {first_day} to {last} on {last_day}"


def _quoted(answer: ToolAnswer) -> list[str]:
    """Quote the first lines of an answer that hold a digit, and end the quotation."""
    rows = [line for line in answer.text.splitlines() if line.strip() and line[0] != "#"]
    with_figures = [line for line in rows if any(char.isdigit() for char in line)]
    lines = [f"{answer.name}: {len(rows)} lines, {len(with_figures)} of them with figures"]
    return lines + _ended([f"  > {_one_line(line)}" for line in with_figures[:QUOTED_LINES]])


def _ended(block: list[str]) -> list[str]:
    """End a list or a quotation: in Markdown it goes on over any next line that is not blank."""
    return [*block, ""] if block else []


def _closing(asked: int, answered: int) -> str:
    if not asked:
        return "No tool was called, so there is nothing to report."
    if not answered:
        return "Nothing was available, so this report gives no reason for or against a position."
    return (
        f"{answered} of {asked} tools answered. The rulebook has no rule for these texts: "
        "they are reported and give no point."
    )


def _tally(seen: Assessment) -> str:
    supporting, opposing = len(seen.supporting), len(seen.opposing)
    return f"Tally: {supporting} for, {opposing} against, {score_in_words(seen)}."


def _pointed(seen: Assessment) -> int:
    return len(seen.supporting) + len(seen.opposing)


def _agreeing(seen: Assessment, action: str) -> tuple[Finding, ...]:
    """Pick the findings on the side of an action; nothing agrees or disagrees with Hold."""
    if action == "Buy":
        return seen.supporting
    if action == "Sell":
        return seen.opposing
    return ()


def _answer(prompt: Prompt, side: Side, own: Sequence[Finding]) -> str:
    """Answer the points that the other side listed last."""
    said = prompt.text_of("opponent_argument", "debate")
    if not said.strip():
        return f"The {side.opponent} has not spoken yet."
    points = _POINT_LINE.findall(said)
    if not points:
        return f"The {side.opponent} names no figure, so there is none to answer."
    rules = ", ".join(dict.fromkeys(rule for rule, _, _ in points))
    weighed = {1: "more", 0: "as many", -1: "fewer"}[
        (len(own) > len(points)) - (len(own) < len(points))
    ]
    return (
        f"Answer to the {side.opponent}: the figures behind its findings ({rules}) are right. "
        f"It lists {len(points)} of them and this side {len(own)}, which is {weighed}."
    )


def _volatility_line(prompt: Prompt, seen: Assessment) -> str:
    return f"Volatility rule: {volatility_rule(seen.rating, prompt.figures).reason}."


def _heard(prompt: Prompt, word: str) -> str:
    """Answer the other two risk analysts."""
    said = prompt.text_of("other_arguments", "debate")
    if not said.strip():
        return "The other two have not spoken yet."
    return f"Answer to the others, who list {len(_POINT_LINE.findall(said))} in all: {word}"
