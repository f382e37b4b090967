"""Hold the statistics against empyrical and alphalens, in an environment of their own.

``python scripts/oracles.py`` sets up ``.venv-oracles`` from ``scripts/oracles.pins`` (which needs a
package index, once) and runs ``tests/oracles/apart.py`` there, on the modules of this checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "scripts" / "oracles.pins"
TESTS = ROOT / "tests" / "oracles" / "apart.py"


def main(arguments: Sequence[str] | None = None) -> int:
    """Set the environment up where it is not, run the tests in it, return their exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-oracles")
    options, for_pytest = parser.parse_known_args(arguments)
    python = environment(options.environment)
    # Without the project's own settings of pytest: the plug-ins that they name are not there.
    command = [str(python), "-m", "pytest", "-c", os.devnull, "--rootdir", str(ROOT)]
    command += ["--noconftest", "-p", "no:cacheprovider", "-q", str(TESTS), *for_pytest]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def environment(folder: Path) -> Path:
    """Return the interpreter of the environment, made anew where the pins have changed."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / ".installed"
    wanted = hashlib.sha256(PINS.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Setting up {folder.name} ...", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "-r", str(PINS)], check=True)
    # Written last: an install that was interrupted is done again.
    stamp.write_text(wanted, encoding="utf-8")
    return python


if __name__ == "__main__":
    sys.exit(main())
