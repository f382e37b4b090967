"""What a user sees of several scores: labels, horizons, folds, trials, comparisons, safe views."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtester.cli import render, render_scores
from backtester.cli import run as command
from backtester.cli.render_scores import benchmark_lines, certain_lines, sharpe_lines
from backtester.imports.imports import import_decisions
from backtester.score.ledger import trials_by_now
from backtester.statistics.inference import mean_interval
from backtester.store.query import run_sql
from backtester.store.scores import Against, BookLine, Certain, ScoreLine, ScoreSummary
from backtester.store.views import VIEWS
from scripts.write_cookbook import COOKBOOK, RECIPE
from tests.support.results import rows_of
from tests.support.snapshots import sessions_of
from tests.support.workspaces import Workspace, make_workspace

pytestmark = pytest.mark.slow

RATINGS = ("Buy", "Overweight", "Hold", "Underweight", "Sell")
FRIDAYS = [date(2017, 5, 5) + timedelta(weeks=week) for week in range(36)]
# Recipes that are about all scores: a second one is another answer.
OF_ALL_SCORES = ("score_comparison", "leak_audit")
OWN_VIEWS = [view.like for view in VIEWS if view.like]


@dataclass(frozen=True)
class Scored:
    """A workspace with two imported runs: one scored in several ways, one over fewer weeks.

    Attributes:
        place: Its folder.
        first: The run that was scored again.
        second: The other one.
        before: What each plain view and each recipe answered before the first was scored again.
        after: What they answered then.
    """

    place: Path
    first: str
    second: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def database(self) -> Path:
        return self.place / "reports" / "results.duckdb"

    def told(self, *words: str) -> int:
        folders = ["--reports-dir", str(self.place / "reports")]
        folders += ["--data-dir", str(self.place / "data")] if words[0] == "score" else []
        return command([*words, *folders])


def decided(days: list[date], shift: int) -> str:
    rows = [
        f"{ticker},{day},{RATINGS[(at * 2 + place + shift) % 5]}"
        for at, day in enumerate(days)
        for place, ticker in enumerate(("AAA", "BBB"))
    ]
    return "\n".join(["ticker,date,rating", *rows, ""])


def answers(database: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: rows_of(database, f"SELECT * FROM {name} ORDER BY ALL") for name in OWN_VIEWS
    }
    for recipe in RECIPE.finditer(COOKBOOK.read_text(encoding="utf-8")):
        if not any(name in recipe["query"] for name in OF_ALL_SCORES):
            found[recipe["query"]] = run_sql(database, recipe["query"])
    return found


def imported(workspace: Workspace, name: str, days: list[date], shift: int) -> str:
    source = workspace.path / f"{name}.csv"
    source.write_text(decided(days, shift), encoding="utf-8")
    settings = {"snapshot": "small", "benchmark": "^GSPC", "horizon": 5, "name": name}
    folders = {"data_dir": workspace.data, "reports_dir": workspace.reports}
    return import_decisions(source, {**settings, **folders}).run_id


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    workspace = make_workspace(tmp_path_factory.mktemp("scored"))
    first = imported(workspace, "first", FRIDAYS, 0)
    place = Scored(place=workspace.path, first=first, second="", before={}, after={})
    before = answers(place.database)
    for flags in (
        ["--hold", "flat"],
        ["--hold", "flat", "--commission-bps", "10"],
        ["--policy", "long_short", "--horizon", "1,5,20", "--fold", "3M"],
        ["--from", "2017-08-01"],
        ["--entry", "close", "--horizon", "5"],
    ):
        assert place.told("score", first, *flags, "--placebo", "0") == 0
    after = answers(place.database)
    second = imported(workspace, "second", FRIDAYS[12:], 1)
    return replace(place, second=second, before=before, after=after)


Shown = Callable[..., str]


@pytest.fixture(params=[80, 120])
def shown(
    scored: Scored,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shown:
    """Run a command at a terminal of some width, and return what it printed, lines checked."""
    width = int(request.param)
    terminal = Console(
        highlight=False, soft_wrap=True, width=width, force_terminal=True, color_system=None
    )
    monkeypatch.setattr(render, "_OUT", terminal)

    def call(*words: str, exit_code: int = 0) -> str:
        capsys.readouterr()
        code = scored.told(*words)
        out, err = capsys.readouterr()
        assert code == exit_code, err
        out = re.sub(r"\x1b\[[0-9;]*m", "", out)
        lines = [line for line in out.splitlines() if "backtester sql" not in line]
        assert max(map(cell_len, lines)) <= width, max(lines, key=cell_len)
        return out

    return call


# ------------------------------------------------------------------------------------ safe views


def test_a_second_score_changes_no_row_of_any_plain_view_and_no_recipe(scored: Scored) -> None:
    for name, rows in scored.before.items():
        assert scored.after[name] == rows, name
    assert len(scored.before) == len(OWN_VIEWS) + 18


def test_a_view_with_rows_of_every_score_says_so_in_its_name() -> None:
    for view in VIEWS:
        if "score_id" in view.key:
            of_all = view.name.endswith("_all") or view.name == "score_comparison"
            assert of_all != (view.name in OWN_VIEWS), view.name


@pytest.mark.parametrize("name", OWN_VIEWS)
def test_under_the_longer_name_every_score_has_its_rows(scored: Scored, name: str) -> None:
    known = {row["score_id"] for row in rows_of(scored.database, "SELECT score_id FROM scores")}
    own = rows_of(scored.database, f"SELECT * FROM {name} ORDER BY ALL")
    query = f"SELECT * FROM {name}_all WHERE score_id = 'default' ORDER BY ALL"

    assert rows_of(scored.database, query) == own
    every = {
        row["score_id"]
        for row in rows_of(scored.database, f"SELECT DISTINCT score_id FROM {name}_all")
    }
    assert every == known


def test_what_a_score_is_can_be_asked_column_by_column(scored: Scored) -> None:
    rows = rows_of(
        scored.database,
        "SELECT label, hold, policy, horizon, horizons, fold, first_date, placebo_draws, "
        "rebalance, slots, fractional, start_cash, costs->>'$.commission_bps' AS bps FROM scores "
        f"WHERE run_id = '{scored.first}' ORDER BY label",
    )
    assert [row["label"] for row in rows] == [
        "from 2017-08-01, placebo 0",
        "h=5, entry close, placebo 0",
        "hold flat, commission 10 bps, placebo 0",
        "hold flat, placebo 0",
        "long_short, h=1 of 1,5,20, fold 3M, placebo 0",
        "the run's own",
    ]
    assert rows[0]["first_date"] == date(2017, 8, 1)
    assert (rows[2]["hold"], float(rows[2]["bps"])) == ("flat", 10.0)
    assert (rows[4]["policy"], rows[4]["horizons"], rows[4]["fold"]) == (
        "long_short",
        [1, 5, 20],
        "3M",
    )
    assert (rows[5]["slots"], rows[5]["fractional"], rows[5]["rebalance"]) == (
        None,
        True,
        "on_change",
    )


def test_trials_by_now_are_those_of_the_ledger(scored: Scored) -> None:
    rows = rows_of(
        scored.database,
        "SELECT c.trials_by_now, c.known_trials, s.definition FROM score_comparison c "
        "JOIN scores s USING (run_id, score_id)",
    )
    ledger = scored.place / "reports" / "ledger.jsonl"
    for row in rows:
        known = trials_by_now(ledger, json.loads(row["definition"]))
        assert row["trials_by_now"] == known.count
    assert any(row["known_trials"] < row["trials_by_now"] for row in rows)


# -------------------------------------------------------------------------------- what is printed


def test_scores_stand_side_by_side_with_what_each_differs_by(shown: Shown, scored: Scored) -> None:
    said = shown("show", scored.first)

    table = said[said.index("all scores of the run") :]
    for label in ("hold flat, commission 10 bps", "from 2017-08-01", "h=5, entry close"):
        assert label in " ".join(table.split())
    assert len(re.findall(r"^ *\d? .*[+-]\d\.\d\d$", table, re.MULTILINE)) >= 5


def test_one_score_is_shown_whole_by_a_part_of_its_id(shown: Shown, scored: Scored) -> None:
    said = shown("show", scored.first, "--score", "commission", "--by", "ticker,month,rating")

    assert re.search(r"^hold +flat +carry *$", said, re.MULTILINE)
    assert re.search(r"^commission_bps +10 +1 *$", said, re.MULTILINE)
    assert re.search(r"^slots +not set *$", said, re.MULTILINE)
    for member in ("AAA", "BBB", "2017-05", "2017-12", "Underweight"):
        assert re.search(rf"^{member} +[+-]\d+\.\d\d\d %", said, re.MULTILINE), member
    places = [said.index(f"\n{rating} ") for rating in reversed(RATINGS)]
    assert places == sorted(places)


def test_one_score_as_json_has_its_own_figures_and_all_scores_beside_it(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert scored.told("show", scored.first, "--score", "long-short", "--json") == 0

    found = json.loads(capsys.readouterr().out)["results"]
    assert found["summary"]["horizon"] == 1
    assert len(found["ratings"]) == 6
    labels = {row["score_id"]: row["label"] for row in found["scores"]}
    assert labels["default"] == "the run's own"
    assert len(labels) == 6


def test_horizons_and_folds_are_printed(shown: Shown, scored: Scored) -> None:
    said = shown("show", scored.first, "--score", "long-short")

    for horizon, mark in ((1, r" \*"), (5, ""), (20, "")):
        assert re.search(rf"^h={horizon}{mark} +[+-]\d+\.\d\d\d % ", said, re.MULTILINE)
    folds = re.findall(r"^(\d{4}-\d\d-\d\d)/\d{4}-\d\d-\d\d +[+-]", said, re.MULTILINE)
    assert folds[0] == "2017-05-05"
    assert len(folds) == 3
    assert "*: the score's own" in said


def test_many_folds_are_counted_and_printed_on_request(
    scored: Scored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(scored.place, tmp_path / "w")
    copy = replace(scored, place=tmp_path / "w")
    asked = ("score", scored.first, "--fold", "2W", "--placebo", "0")
    fold = re.compile(r"^\d{4}-\d\d-\d\d/\d{4}-\d\d-\d\d ", re.MULTILINE)

    assert copy.told(*asked) == 0
    said = capsys.readouterr().out
    assert "18 folds: --by fold prints them" in said
    assert not fold.search(said)

    assert copy.told(*asked, "--by", "fold") == 0
    # One line of what the decisions earned and one of what the book made, for each.
    assert len(fold.findall(capsys.readouterr().out)) == 2 * 18


def test_a_horizon_table_shows_the_figures_of_the_tables(shown: Shown, scored: Scored) -> None:
    (row,) = rows_of(
        scored.database,
        f"SELECT * FROM alpha_by_horizon WHERE run_id = '{scored.first}' AND horizon = 5",
    )
    said = shown("show", scored.first)

    line = next(line for line in said.splitlines() if line.startswith("h=5 *"))
    assert f"{100 * row['mean_alpha']:+.3f} %" in line
    assert f"{100 * row['mean_directional_alpha']:+.3f} %" in line
    assert f" {row['n']} " in line
    ends = f"{100 * row['low']:+.3f} to {100 * row['high']:+.3f} %"
    assert ends in line


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("score", "first", "--from", "2031-01-01"), 2, "2031-01-01 is after the last day of dec"),
        (("score", "first", "--to", "2016-01-01"), 2, "2016-01-01 is before the first day"),
        (("show", "first", "--score", "nothing"), 2, "score 'nothing' of run"),
        (("show", "first", "--score", "h"), 2, "is ambiguous: there are"),
        (("show", "first", "--by", "week"), 2, "--by: write one or more of ticker,month"),
        (
            ("score", "first", "--benchmark", "SPY"),
            3,
            "benchmark SPY is not in snapshot small, which holds",
        ),
        (("compare", "first", "first"), 2, "are the same score of the same run: name two"),
        (("compare", "first", "first:"), 2, "are the same score of the same run"),
        (("compare", "first", "second:none-such"), 2, "score 'none-such' of run"),
        (("compare", "first", "third"), 3, "run 'third' is unknown"),
    ],
)
def test_what_is_not_there_is_one_line(
    scored: Scored, words: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scored.told(*words) == code

    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_what_differs_in_nothing_is_the_runs_own_score(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_of(scored.database, "SELECT score_id FROM scores ORDER BY ALL")

    assert scored.told("score", scored.first, "--hold", "carry", "--horizon", "5,20,1") == 0

    assert "score default of run" in capsys.readouterr().out
    assert rows_of(scored.database, "SELECT score_id FROM scores ORDER BY ALL") == before


def test_the_months_of_every_book_multiply_to_its_return(scored: Scored) -> None:
    months = rows_of(
        scored.database,
        "SELECT run_id, score_id, book, trial, ret FROM book_by_month_all ORDER BY month",
    )
    grown: dict[tuple[Any, ...], float] = {}
    for row in months:
        key = (row["run_id"], row["score_id"], row["book"], row["trial"])
        grown[key] = grown.get(key, 1.0) * (1.0 + row["ret"])
    totals = rows_of(
        scored.database,
        "SELECT run_id, score_id, subject, trial, value FROM metrics "
        "WHERE metric = 'total_return' AND subject <> 'random' AND scope = 'all'",
    )
    assert {key[2] for key in grown} >= {"ratings", "buy_and_hold", "equal_weight", "macd:textbook"}
    assert len(totals) == len(grown)
    for row in totals:
        key = (row["run_id"], row["score_id"], row["subject"], row["trial"])
        assert grown[key] - 1.0 == pytest.approx(row["value"], abs=1e-12), key


# ------------------------------------------------------------------------- trials, short samples

BOOK = BookLine(
    book="ratings",
    trial=0,
    sessions=250,
    total_return=0.1,
    cagr=0.1,
    volatility=0.2,
    sharpe=1.8,
    sharpe_low=-0.9,
    sharpe_high=4.5,
    max_drawdown=-0.1,
    turnover=1.0,
    orders_filled=3.0,
    orders_rejected=0.0,
    deflated_sharpe=0.41,
    min_track_record_length=200.0,
    pbo=None,
)


def summary_of(book: BookLine | None, *, known: int, now: int) -> ScoreSummary:
    return ScoreSummary(
        run_id="run-a",
        score_id="default",
        label="the run's own",
        definition={},
        horizon=5,
        first_date=date(2018, 1, 1),
        last_date=date(2018, 12, 31),
        snapshot_name="small",
        no_book=None,
        known_trials=known,
        trials_by_now=now,
        books=() if book is None else (book,),
        band=None,
        certain=(),
        horizons=(),
        folds=(),
    )


def test_a_ratio_is_printed_with_its_interval_the_trials_and_what_they_make_of_it() -> None:
    (line,) = sharpe_lines(summary_of(BOOK, known=3, now=3))

    assert line == (
        "Sharpe ratio of the ratings +1.80 (95 % -0.90 to +4.50), at least 3 trials of these "
        "instruments and days; deflated 0.41: the chance that the true one is above the best of "
        "so many without skill"
    )


def test_trials_made_since_are_told() -> None:
    (line,) = sharpe_lines(summary_of(BOOK, known=3, now=17))

    assert line.endswith(
        ", at least 17 trials of these instruments and days by now; deflated 0.41 for the 3 known "
        "when scored: the chance that the true one is above the best of so many without skill; "
        "score it again with --again for 17"
    )


@pytest.mark.parametrize(
    ("sessions", "why"), [(19, "too few returns"), (20, "no shape of its returns")]
)
def test_what_was_not_deflated_is_not_said_to_have_been(sessions: int, why: str) -> None:
    blank = replace(BOOK, sessions=sessions, deflated_sharpe=None, min_track_record_length=None)

    line, *others = sharpe_lines(summary_of(blank, known=3, now=17))

    assert line.endswith(
        f", at least 17 trials of these instruments and days by now; cannot be deflated: {why}"
    )
    assert not any("deflated" in other for other in others)


def test_a_short_sample_is_not_printed_without_a_word() -> None:
    short = replace(
        BOOK, sessions=19, sharpe_low=None, sharpe_high=None, min_track_record_length=None
    )

    first, second = sharpe_lines(summary_of(short, known=1, now=1))

    assert "+1.80 (no interval, too few returns), at least 1 trial of" in first
    assert second == ("*: of only 19 session returns: a figure a year says next to nothing then")


def test_a_record_too_short_and_a_choice_among_many_are_told() -> None:
    doubtful = replace(BOOK, min_track_record_length=1700.2, pbo=0.43)

    _, length, chosen = sharpe_lines(summary_of(doubtful, known=3, now=3))

    assert length == "to tell it from 0 takes 1,701 session returns, and there are 250"
    assert chosen == "probability of overfitting, over the stored books of related trials: 0.43"


def test_a_book_without_a_ratio_has_its_trials_told() -> None:
    flat = replace(BOOK, sharpe=None)
    for book in (flat, None):
        assert list(sharpe_lines(summary_of(book, known=2, now=2))) == [
            "Sharpe ratio of the ratings: n/a; at least 2 trials of these instruments and days"
        ]


@pytest.mark.parametrize(("sharpe", "starred"), [(None, False), (5.4, True)])
def test_a_footnote_is_printed_where_its_star_is(
    sharpe: float | None,
    starred: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ScoreLine(
        score_id="model-cost-charged",
        label="model cost charged",
        mean_directional_alpha=0.01,
        low=None,
        high=None,
        reason="too_few_windows",
        total_return=None,
        buy_and_hold=0.0597,
        sharpe=sharpe,
        sessions=18,
    )
    monkeypatch.setattr(render_scores, "score_lines", lambda database, run_id: (line,))

    render_scores.show_score_table(Path("results.duckdb"), "run-a")

    said = capsys.readouterr().out
    assert ("+5.40 *" in said) == ("*: of fewer than 60" in said) == starred


# ------------------------------------------------------------------------------------- comparing


def test_scores_of_one_run_are_set_against_each_other_with_their_difference(
    shown: Shown, scored: Scored
) -> None:
    said = shown("compare", scored.first, f"{scored.first}:hold-flat-placebo")

    assert "comparable: both of decisions of 2017-05-05 to 2018-01-05" in " ".join(said.split())
    assert re.search(r"^policy +long_only +long_only, hold flat *$", said, re.MULTILINE)
    books = [
        rows_of(
            scored.database,
            "SELECT total_return FROM book_performance_all WHERE book = 'ratings' AND "
            f"run_id = '{scored.first}' AND score_id LIKE '{score}'",
        )[0]["total_return"]
        for score in ("default", "hold-flat-placebo%")
    ]
    row = next(line for line in said.splitlines() if line.startswith("total return"))
    figures = [*books, books[0] - books[1]]
    assert row.split()[2::2] == [f"{100 * figure:+.2f}" for figure in figures]
    assert "72 cells decided by both, 72 with the same rating" in said
    assert "no difference" in said


def test_runs_of_other_windows_are_not_subtracted_but_paired(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scored.told("compare", scored.first, scored.second) == 0
    said = " ".join(capsys.readouterr().out.split())

    assert "other window: A 2017-05-05 to 2018-01-05; B 2017-07-28 to 2018-01-05" in said
    assert "not comparable as they stand" in said
    assert "A - B" not in said.split("cells decided by both")[0]
    assert "48 cells decided by both" in said
    assert not re.search(r"None|True|False|[\[\]{}]|datetime", said)

    assert scored.told("compare", scored.first, scored.second, "--json") == 0
    calls = json.loads(capsys.readouterr().out)["calls"]
    pairs = rows_of(
        scored.database,
        "SELECT a.session, a.directional_alpha AS one, b.directional_alpha AS other FROM "
        "horizon_returns a, "
        "horizon_returns b WHERE a.session = b.session AND a.ticker = b.ticker AND a.horizon = 5 "
        f"AND b.horizon = 5 AND a.run_id = '{scored.first}' AND b.run_id = '{scored.second}' AND "
        "a.score_id = 'default' AND b.score_id = 'default'",
    )
    assert calls["n"] == len(pairs) == 48
    mean = math.fsum(row["one"] - row["other"] for row in pairs) / 48
    assert calls["difference"]["mean"] == pytest.approx(mean, abs=1e-15)
    assert calls["first"] - calls["second"] == pytest.approx(mean, abs=1e-15)
    # The interval knows how far the decisions lie apart on the exchange's calendar.
    days = sessions_of("AAA", "2017-01-03", 300)
    places = {day: at for at, day in enumerate(days)}
    wanted = mean_interval(
        [row["one"] - row["other"] for row in pairs], [places[row["session"]] for row in pairs], 5
    )
    assert wanted.low is not None
    assert calls["difference"]["low"] == pytest.approx(wanted.low, abs=1e-12)
    assert calls["difference"]["high"] == pytest.approx(wanted.high, abs=1e-12)


def test_books_are_paired_over_the_sessions_that_both_have(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert scored.told("compare", scored.first, scored.second, "--json") == 0
    books = json.loads(capsys.readouterr().out)["books"]

    found = rows_of(
        scored.database,
        "SELECT session, run_id, ret FROM equity WHERE book = 'ratings' AND score_id = 'default' "
        "AND ret IS NOT NULL",
    )
    curves = {
        run: {row["session"]: row["ret"] for row in found if row["run_id"] == run}
        for run in (scored.first, scored.second)
    }
    common = sorted(set(curves[scored.first]) & set(curves[scored.second]))
    assert (books["n"], books["start"], books["end"]) == (
        len(common),
        str(common[0]),
        str(common[-1]),
    )
    for key, run in (("first", scored.first), ("second", scored.second)):
        made = math.prod(1.0 + curves[run][day] for day in common) - 1.0
        assert books[key] == pytest.approx(made, abs=1e-12)


def test_another_entry_rule_is_told_and_stays_in_the_pairs(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scored.told("compare", scored.first, f"{scored.first}:entry-close") == 0
    said = capsys.readouterr().out

    assert "other entry rule: A next_open; B close" in said
    assert "the pairs differ by entry rule too, and not by ratings and book alone" in said


def test_another_horizon_is_paired_at_one_that_both_have(
    scored: Scored, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scored.told("compare", f"{scored.first}:long-short", scored.first) == 0
    said = capsys.readouterr().out

    assert "other horizon: A 1; B 5" in said
    assert "have one in both (h=1, a Hold counts 0)" in said
    assert "the pairs differ by" not in said


def test_a_run_that_was_deleted_leaves_the_trials_that_it_was(
    scored: Scored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(scored.place, tmp_path / "w")
    copy = replace(scored, place=tmp_path / "w")
    (before,) = rows_of(copy.database, _BY_NOW.format(scored.second))
    shutil.rmtree(copy.place / "reports" / scored.first)

    assert copy.told("rebuild") == 0

    assert rows_of(copy.database, _BY_NOW.format(scored.second)) == [before]
    assert before["trials_by_now"] > 5


_BY_NOW = "SELECT trials_by_now FROM score_comparison WHERE run_id = '{}'"


# ------------------------------------------------------------------ the benchmark, permuted paths

AGAINST = Against(benchmark="^GSPC", basis="price", first=date(2018, 1, 5), last=date(2018, 12, 31))
MEASURED = replace(
    BOOK,
    benchmark_return=-0.0861,
    excess_return=0.127,
    beta=0.87,
    jensen_alpha=0.1266,
    jensen_alpha_se=0.1258,
)


def against(book: BookLine) -> list[str]:
    return list(benchmark_lines(replace(summary_of(book, known=1, now=1), against=AGAINST)))


def test_the_benchmark_over_the_sessions_of_the_book_is_told() -> None:
    before = "benchmark ^GSPC over the same sessions (2018-01-05 to 2018-12-31): -8.61 %"
    alpha = "Jensen's alpha +12.66 % a year (se 12.58 %)"
    assert against(MEASURED) == [
        f"{before} (price basis), excess of the ratings +12.70 %, beta 0.87, {alpha}"
    ]
    unsure = replace(MEASURED, beta=None, jensen_alpha=None, jensen_alpha_se=None)
    assert against(unsure) == [f"{before} (price basis), excess of the ratings +12.70 %"]
    (short,) = against(replace(MEASURED, sessions=30))
    assert short.endswith("a year (se 12.58 %) *")


def test_without_a_benchmark_there_is_no_line_of_it() -> None:
    assert against(BOOK) == []
    assert list(benchmark_lines(summary_of(MEASURED, known=1, now=1))) == []
    assert list(benchmark_lines(summary_of(None, known=1, now=1))) == []


def test_the_p_of_permuted_paths_has_its_side_and_what_it_is_held_against() -> None:
    paths = Certain(
        horizon=5,
        metric="path_permutation",
        value=0.00154,
        n=306,
        effective_n=None,
        low=None,
        high=None,
        p_value=0.193,
        reason=None,
        verdict="not distinguishable from luck",
    )
    summary = replace(summary_of(BOOK, known=1, now=1), certain=(paths,))
    plain = "rating paths permuted between tickers: two-sided p 0.193"
    assert list(certain_lines(summary)) == [plain]
    assert list(certain_lines(replace(summary, paths_expected=0.00261))) == [
        f"{plain}; observed +0.154 %, mean of permuted paths +0.261 %"
    ]
    few = replace(paths, p_value=None, reason="too_few_tickers")
    (line,) = certain_lines(replace(summary, certain=(few,)))
    assert line == "rating paths permuted between tickers: p n/a (too few tickers)"
