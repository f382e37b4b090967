"""The container files keep their rules. They are read here; nothing builds or runs them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from typer.main import get_command

from backtester.cli import app
from backtester.config import RunConfig
from tests.guards.sources import ROOT, expect_none, repository_files
from tradingagents_core.llm.providers import PROVIDERS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction of a Dockerfile: its word, and the rest as one line."""

    word: str
    rest: str

    @property
    def argv(self) -> Sequence[str]:
        """Return the arguments of the exec form, which no shell takes apart."""
        found = json.loads(self.rest)
        assert isinstance(found, list)
        return found


def parse(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield Instruction(word=word.upper(), rest=" ".join(rest.split()))


INSTRUCTIONS = tuple(parse((ROOT / "Dockerfile").read_text(encoding="utf-8")))


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for instruction in INSTRUCTIONS:
        if instruction.word == "FROM":
            found.append([])
        found[-1].append(instruction)
    return found


def last(word: str) -> Instruction:
    return [step for step in stages()[-1] if step.word == word][-1]


def copied() -> set[str]:
    """Return what is copied from the checkout into any stage."""
    copies = [step.rest.split() for step in INSTRUCTIONS if step.word == "COPY"]
    local = [copy for copy in copies if not any(part.startswith("--from") for part in copy)]
    return {source for copy in local for source in copy[:-1]}


def is_ignored(path: str) -> bool:
    """Say whether .dockerignore leaves a path out: the last rule that fits it or a parent wins."""
    ignored = False
    for rule in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").removeprefix("**/")
        anywhere = "**/" in rule
        candidates = [PurePosixPath(path), *PurePosixPath(path).parents][:-1]
        if any(
            fnmatch(candidate.name if anywhere else candidate.as_posix(), pattern)
            and (anywhere or candidate.as_posix().count("/") == pattern.count("/"))
            for candidate in candidates
        ):
            ignored = not rule.startswith("!")
    return ignored


def commands() -> set[str]:
    return set(getattr(get_command(app), "commands", {}))


# ---------------------------------------------------------------------------------- Dockerfile


def test_the_default_command_is_the_demo() -> None:
    assert last("ENTRYPOINT").argv == list(PROJECT["project"]["scripts"])
    assert last("CMD").argv == ["demo"]
    assert "demo" in commands()


def test_both_stages_stand_on_the_python_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.search(r"pip-compile with Python (\d+\.\d+)", lock)
    assert locked is not None
    bases = [stage[0].rest.split()[0] for stage in stages()]
    expect_none(base for base in bases if not base.startswith(f"python:{locked[1]}-slim-"))
    assert len(set(bases)) == 1


def test_every_package_is_checked_against_its_hash_and_the_last_stage_asks_no_index() -> None:
    runs = [(i, step.rest) for i, stage in enumerate(stages()) for step in stage]
    pips = [
        (i, call) for i, rest in runs for call in re.findall(r"pip (?:install|wheel) [^&]*", rest)
    ]
    assert len(pips) == 4
    expect_none(
        call for _, call in pips if not {"--require-hashes", "--no-index"} & {*call.split()}
    )
    expect_none(call for i, call in pips if i == 1 and "--no-index" not in call)


def test_the_image_runs_as_somebody_and_knows_no_secret() -> None:
    assert last("USER").rest not in {"root", "0"}
    words = [step.word for step in stages()[-1]]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    expect_none(
        step.rest
        for step in INSTRUCTIONS
        if step.word in {"ARG", "ENV"} and SECRET.search(step.rest)
    )


def test_what_is_copied_exists_and_reaches_the_build() -> None:
    expect_none(
        source for source in sorted(copied()) if not (ROOT / source).exists() or is_ignored(source)
    )


def test_what_the_wheel_is_built_from_is_copied() -> None:
    project = PROJECT["project"]
    needed = {*PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]}
    needed |= {project["readme"], *project["license-files"], "pyproject.toml"}
    assert sorted(needed - copied()) == []


# -------------------------------------------------------------------------------- .dockerignore


def test_only_what_is_copied_reaches_the_build() -> None:
    expect_none(
        name
        for path in repository_files()
        if not is_ignored(name := path.relative_to(ROOT).as_posix())
        and not any(name == source or name.startswith(f"{source}/") for source in copied())
    )


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".git/config", "reports/run/journal.jsonl", "data/cache/replies/cache.db"),
        *("data/snapshots/other/bars.parquet", "tests/conftest.py", "cassettes/demo.jsonl.zst"),
        *("backtester/__pycache__/api.cpython-311.pyc", "data/notes.txt"),
    ],
)
def test_private_and_needless_files_stay_outside(path: str) -> None:
    assert is_ignored(path)


# -------------------------------------------------------------------------- docker-compose.yml


def test_the_service_without_a_profile_runs_the_default_command() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == [
        "tradingagents"
    ]
    assert "command" not in SERVICES["tradingagents"]


def test_the_profile_of_ollama_brings_a_server_and_a_client_that_waits_for_it() -> None:
    names = [name for name, service in SERVICES.items() if service.get("profiles") == ["ollama"]]
    assert names == ["tradingagents-ollama", "ollama"]
    assert SERVICES["tradingagents-ollama"]["depends_on"] == {
        "ollama": {"condition": "service_healthy"}
    }
    assert SERVICES["tradingagents-ollama"]["command"][0] in commands()
    assert SERVICES["ollama"]["healthcheck"]["test"][0] == "CMD"


def test_every_setting_of_a_service_is_a_setting_of_a_run() -> None:
    environment = SERVICES["tradingagents-ollama"]["environment"]
    settings = {name.removeprefix("BACKTESTER_").lower() for name in environment}
    assert sorted(settings - set(RunConfig.model_fields)) == []
    provider = PROVIDERS[environment["BACKTESTER_PROVIDER"]]
    assert provider.has_endpoint
    assert not provider.key_required
    host = re.match(r"http://([a-z]+):11434/v1$", environment["BACKTESTER_BASE_URL"])
    assert host is not None
    assert host[1] in SERVICES


def test_images_are_pinned_and_nothing_is_opened() -> None:
    for service in SERVICES.values():
        image = service["image"]
        assert "build" in service or re.search(r":(?:\$\{\w+:-)?\d+(?:\.\d+)+\}?$", image)
        assert not {"ports", "privileged", "network_mode", "cap_add", "devices"} & set(service)
        volumes = {volume.split(":")[0] for volume in service.get("volumes", ())}
        assert sorted(volumes - set(COMPOSE["volumes"])) == []


def test_no_secret_stands_in_the_file() -> None:
    expect_none(
        f"{name}: {variable}"
        for name, service in SERVICES.items()
        for variable in service.get("environment", {})
        if SECRET.search(variable)
    )
    assert SERVICES["tradingagents"]["env_file"] == [{"path": ".env", "required": False}]
