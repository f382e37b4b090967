"""The recording of a real language model: fresh, whole, replayed; and two decisions made live."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from backtester.api import replay, run
from backtester.loading import load_config
from backtester.packs.adoption import real_model_pack
from backtester.packs.packs import read_head, verify_pack
from backtester.packs.replays import replay_pack
from backtester.replies.recordings import answers_of
from backtester.runs.folder import RESULTS_VERSION
from backtester.runs.journal import read_ledger
from backtester.walk.cell import build_pipeline
from tests.support.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "cassettes" / "smollm2-2018.toml"
MODEL_PYTHON = ROOT / ".venv-model" / "bin" / "python"
PACK = real_model_pack()
# What the model can read and write in one call.
CONTEXT_TOKENS = 8192
STALE = (
    f"{PACK.name} is stale: prompts, tools or results have changed since it was recorded; "
    "'make record-demo' records it anew"
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return the script behind `make record-demo` as a module."""
    return load_script("record_real_model")


def test_the_recording_is_not_stale() -> None:
    head = read_head(PACK)
    config = load_config(CONFIG, flags={"base_url": "http://127.0.0.1:1/v1", "mode": "replay"})

    assert head.prompt_fingerprint == build_pipeline(config).fingerprint(), STALE
    assert head.results_version == RESULTS_VERSION, STALE


def test_it_is_the_run_of_the_configuration_beside_it() -> None:
    config = load_config(CONFIG, flags={"base_url": "http://127.0.0.1:1/v1"})
    recorded = read_head(PACK).identity

    asked = {**config.identity_fields(), "tickers": sorted(config.tickers)}
    assert {name: recorded.get(name) for name in asked} == asked, STALE


def test_every_key_is_derived_again(tmp_path: Path) -> None:
    report = verify_pack(PACK, tmp_path)

    assert report.answers.problems == ()
    assert report.answers.records > 100


@pytest.mark.slow
def test_it_replays_to_its_own_root_without_a_network(tmp_path: Path) -> None:
    result = replay_pack(PACK, tmp_path / "data", keep=tmp_path / "kept")

    assert result.misses == (), f"{result.diff}\n{STALE}"
    assert result.equal
    assert result.folder is not None
    ledger = read_ledger(result.folder / result.run_id / "journal.jsonl")
    # Three tickers on four sessions at least, and lessons that later decisions were shown.
    assert len(ledger.cells) >= 12
    assert len({key.session for key in ledger.cells}) >= 4
    assert any(cell.lessons_shown for cell in ledger.cells.values())
    assert Counter(row.lesson_status for row in ledger.lessons.values())["written"] >= 6


def test_every_prompt_fits_the_model() -> None:
    sizes = [record.reply.usage for record in answers_of(PACK)]
    tokens = [(usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in sizes]

    assert min(tokens) > 0
    assert max(tokens) <= CONTEXT_TOKENS


@pytest.mark.local_model
@pytest.mark.slow
@pytest.mark.skipif(
    not MODEL_PYTHON.is_file(),
    reason="no small model is installed: 'make local-model' sets one up (220 MB)",
)
def test_two_decisions_made_live_replay_to_their_root(tmp_path: Path, script: ModuleType) -> None:
    """The model talks over HTTP; what it says is recorded, and then needs it no more."""
    places = {"data_dir": tmp_path / "data", "reports_dir": tmp_path / "reports"}
    two = {"tickers": ("AAPL",), "end": "2018-05-11", "analysts": ("market",)}
    with script.served(MODEL_PYTHON) as address:
        config = load_config(CONFIG, flags={**two, **places, "base_url": address})
        made = run(config)

    assert made.manifest.config["provider"] == "openai_compatible"
    assert Counter(cell.status for cell in made.ledger.cells.values()).total() == 2
    calls = [call for cell in made.ledger.cells.values() for call in cell.calls]
    assert len(calls) >= 20
    assert not any(call.hit for call in calls)
    assert replay(made).equal
