"""Record the real-model demo anew: a walk-forward run with SmolLM2-135M, packed into one file.

    make record-demo

Starts the model on this machine, records the run of ``cassettes/smollm2-2018.toml`` into an empty
workspace, packs it, stops the model and replays the pack without it. The commands are those that
anybody would type.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "cassettes" / "smollm2-2018.toml"
PACK = ROOT / "cassettes" / "smollm2-2018.jsonl.zst"
SERVER = ROOT / "scripts" / "local_model_server.py"
COMMAND = (sys.executable, "-m", "backtester")


@contextmanager
def served(python: Path, *, threads: int = 2) -> Iterator[str]:
    """Serve the model while the block runs, and yield its address.

    Args:
        python: Interpreter of the environment that holds the model.
        threads: Processor threads that it may use.

    Raises:
        RuntimeError: The model did not start; what it said went to standard error.
    """
    command = [str(python), str(SERVER), "--threads", str(threads)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"{SERVER.name} did not start: run it by hand to see why")
            yield address
        finally:
            child.terminate()


def backtester(*words: str) -> None:
    """Run one command of the command line; its output is ours.

    Raises:
        CalledProcessError: It ended with another code than 0.
    """
    subprocess.run([*COMMAND, *words], check=True)


def record(python: Path, config: Path, pack: Path, *, threads: int) -> None:
    """Record the run of a configuration with the model, pack it, and replay the pack."""
    with tempfile.TemporaryDirectory(prefix="real-model-") as scratch:
        folders = ("--data-dir", f"{scratch}/data", "--reports-dir", f"{scratch}/reports")
        with served(python, threads=threads) as address:
            backtester("run", str(config), "--base-url", address, *folders)
        backtester("cassette", "pack", "latest", "--out", str(pack), "--force", *folders)
    backtester("replay", str(pack))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, pack, replay."""
    parser = argparse.ArgumentParser(description="Record the real-model demo anew.")
    parser.add_argument("--model-python", type=Path, required=True, help="of `make local-model`")
    parser.add_argument("--config", type=Path, default=CONFIG, help="what to run")
    parser.add_argument("--out", type=Path, default=PACK, help="where the pack goes")
    parser.add_argument("--threads", type=int, default=2, help="processor threads of the model")
    given = parser.parse_args(arguments)
    try:
        record(given.model_python, given.config, given.out, threads=given.threads)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"record_real_model: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
