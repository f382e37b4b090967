"""Every text that the pipeline can say to a model, said once to a made-up cell.

The texts go through the very functions that build prompts, so a change of any word, or of the
order of two lines, shows in them. The values filled in are fixed and belong to no market.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from tradingagents_core import holdings, prompts
from tradingagents_core.agents.reflector import ReflectionRequest, reflection_messages
from tradingagents_core.decisions import FORMS
from tradingagents_core.prompts import Brief
from tradingagents_core.protocols import BookSource, Holding, Holdings, Identity, Lesson
from tradingagents_core.settings import PipelineSettings
from tradingagents_core.topology import AnalystRow

_DAY = date(2001, 2, 3)
_IDENTITY = Identity(
    instrument="PROBE",
    symbol="PROBE",
    name="Probe",
    exchange="EXCHANGE",
    currency="XXX",
    sector="Sector",
    asset_type="kind",
    static=True,
)
_LESSON = Lesson(
    symbol="PROBE",
    session=_DAY,
    rating="Hold",
    horizon=1,
    raw_return=0.0,
    alpha=None,
    benchmark="MARKET",
    decision="decision " * prompts.DECISION_LIMIT,
    reflection="reflection",
)


def prompt_texts(settings: PipelineSettings, analysts: Sequence[AnalystRow]) -> dict[str, str]:
    """Return all texts by a name that says where they are used.

    Args:
        settings: Whose look-backs, language and tool turns the texts name.
        analysts: Chosen analysts; their tasks are among the texts.
    """
    brief = _brief(settings)
    texts = {f"system {role}": text for role, text in _system_texts(brief, analysts).items()}
    texts |= _closings(settings)
    texts["placeholder"] = prompts.placeholder_text(brief)
    texts["lessons"] = prompts.human_text(
        prompts.lesson_blocks(brief), prompts.lesson_closing(brief)
    )
    texts["no lessons"] = prompts.lesson_closing(replace(brief, lessons=""))
    texts |= _book_texts(brief)
    texts["plain block"] = prompts.block("name", "data", "a </block> b")
    texts["empty block"] = prompts.block("name", "report", "")
    texts["tool answer"] = prompts.tool_text("get_news", "# headline")
    texts["no source"] = prompts.missing_text(prompts.NOT_PRINTED.format(table="table"))
    for position, message in enumerate(reflection_messages(_REFLECTION, settings)):
        texts[f"reflection {position}"] = str(message.text)
    return texts


def _book_texts(brief: Brief) -> dict[str, str]:
    """Return what is said about a book of each source, with positions and without."""
    sources: tuple[BookSource, ...] = ("user", "simulated")
    texts = {}
    for source in sources:
        for positions in ((), (_HOLDING, _UNPRICED)):
            shown = replace(brief, book=replace(_BOOK, source=source, positions=positions))
            texts[f"book {source} {len(positions)}"] = prompts.human_text(
                holdings.book_blocks(shown), *holdings.book_closing(shown)
            )
    return texts


_HOLDING = Holding(
    symbol="PROBE", shares=-1.5, price=2.0, value=-3.0, weight=-0.5, unrealised=-0.25
)
_UNPRICED = Holding(
    symbol="OTHER", shares=1.0, price=None, value=None, weight=None, unrealised=None
)
_BOOK = Holdings(source="user", as_of=None, currency="XXX", cash=9.0, equity=6.0, rule="rule")


_REFLECTION = ReflectionRequest(
    cell="",
    symbol="PROBE",
    session=_DAY,
    trial=0,
    generation=0,
    rating="Hold",
    decision="decision",
    horizon=1,
    raw_return=0.0,
    alpha=None,
    benchmark="MARKET",
    name="Probe",
    resolved=_DAY,
)


def _brief(settings: PipelineSettings) -> Brief:
    return Brief(
        day=_DAY,
        instrument=prompts.instrument_line(_IDENTITY),
        benchmark="MARKET",
        notes=prompts.identity_notes(_IDENTITY),
        # Another language than the default brings the sentence about languages out.
        language="Probe language",
        debate_language=settings.debate_language,
        price_lookback=settings.price_lookback,
        news_lookback_days=settings.news_lookback_days,
        global_news_lookback_days=settings.global_news_lookback_days,
        lessons=prompts.lessons_text([_LESSON], [_LESSON]),
    )


def _system_texts(brief: Brief, analysts: Sequence[AnalystRow]) -> dict[str, str]:
    tasks = {
        row.node: prompts.analyst_task(brief, row.task or prompts.ANALYST_TASKS[row.key])
        for row in analysts
    }
    tasks |= prompts.DEBATE_TASKS
    for role in prompts.DECISION_TASKS:
        tasks[role] = prompts.decision_task(role, rated=True)
    return {role: prompts.system_text(brief, role, task) for role, task in tasks.items()}


def _closings(settings: PipelineSettings) -> dict[str, str]:
    turns = settings.max_tool_turns
    texts = {
        "speak": prompts.human_text((), prompts.OPENING_SPEECH, prompts.SPEAK_NOW),
        "report now": prompts.REPORT_NOW.format(turns=turns),
        "limit": prompts.LIMIT_NOTE.format(turns=turns),
        "no report": prompts.NO_REPORT_AT_LIMIT.format(turns=turns),
        "again": prompts.repair_closing("problem"),
        "rejected": prompts.rejected_block("reply"),
    }
    texts |= {f"problem {kind}": text for kind, text in prompts.OUTCOME_PROBLEMS.items()}
    for name, form in FORMS.items():
        texts[f"{name} typed"] = prompts.form_closing(form)
        texts[f"{name} json"] = prompts.json_closing(form)
        texts[f"{name} plain"] = prompts.plain_closing(form)
    return texts
