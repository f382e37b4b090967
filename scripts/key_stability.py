"""Derive the keys of known calls under several versions of the client library, and compare.

    python scripts/key_stability.py             # needs a package index; two to three minutes

A key is the sha256 of what the client library would send, so an upgrade of that library could make
every recording a miss. Each environment is made from nothing: the first release of the major
version that the lock file holds, the lower bounds of pyproject.toml, and the lock file's own pins.
In each the fixed calls of `tests/support/key_calls.py` must have the keys of
`tests/core/llm/golden_keys.json`, and every recorded request of the committed cassettes, read and
built anew, must lead to its own key. Exit code 1 if one does not.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/core/llm/golden_keys.json"
# What derives a key; the rest of the lock file has no part in it.
CLIENT = ("langchain-openai", "openai", "langchain-core")
BESIDE = ("httpx2", "numpy", "orjson", "pydantic")
# The first release of a major version, with the oldest client that it takes.
FIRST = {"1": {"langchain-openai": "1.0.0", "openai": "1.109.1"}}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Name a set of versions."""

    name: str
    pins: Mapping[str, str]


def main() -> int:
    """Derive all keys in all environments and return the exit code."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    recorded = _recorded_requests()
    print(f"{len(golden)} fixed calls, {len(recorded)} recorded requests of the cassettes")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests.json"
        requests.write_text(json.dumps(recorded), encoding="utf-8")
        for number, environment in enumerate(_environments()):
            found = _derive(environment, Path(folder) / str(number), requests)
            wrong = [name for name, key in golden.items() if found["fixed"].get(name) != key]
            wrong += [key for key, again in found["recorded"].items() if again != key]
            versions = ", ".join(f"{name} {version}" for name, version in environment.pins.items())
            print(f"{environment.name}: {versions}: {'ok' if not wrong else 'DIFFERENT KEYS'}")
            for name in wrong:
                print(f"  {name}")
            bad += len(wrong)
    return 1 if bad else 0


def _environments() -> tuple[Environment, ...]:
    locked = _locked()
    core = locked["langchain-core"]
    named = [
        Environment(
            name="first of the major version",
            # The classes of LangChain's core are another package, with versions of its own.
            pins={**FIRST[locked["langchain-openai"].split(".")[0]], "langchain-core": core},
        ),
        Environment(name="lower bounds", pins=_lower_bounds()),
        Environment(name="lock file", pins={name: locked[name] for name in CLIENT}),
    ]
    # Bounds that follow the lock closely are the same environment twice.
    return tuple({json.dumps(dict(one.pins)): one for one in named}.values())


def _locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def _lower_bounds() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(one.split(">=") for one in project["dependencies"] if ">=" in one)
    return {name: bounds[name] for name in CLIENT}


def _derive(environment: Environment, folder: Path, requests: Path) -> dict[str, Any]:
    """Install an environment into a folder and run the calls there."""
    locked = _locked()
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wanted = [f"{name}=={version}" for name, version in environment.pins.items()]
    wanted += [f"{name}=={locked[name]}" for name in BESIDE]
    subprocess.run(
        [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted],
        check=True,
    )
    done = subprocess.run(
        [python, "-m", "tests.support.key_calls", requests],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _recorded_requests() -> dict[str, Any]:
    """Return the key documents of all committed cassettes that went to a model over HTTP."""
    from backtester.replies.recordings import answers_of

    found: dict[str, Any] = {}
    for path in sorted((ROOT / "cassettes").glob("*.jsonl.zst")):
        for record in answers_of(path):
            document = json.loads(record.request)
            if "messages" in document["body"] and document["provider"] != "rulebook":
                found[record.key] = document
    return found


if __name__ == "__main__":
    sys.exit(main())
