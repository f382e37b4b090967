"""Nothing on a run's path reads the wall clock, the environment, chance or an unordered thing.

The linter bans the same calls with their replacement in the message, but a `noqa` silences it.
Here an exception needs a line in `ALLOWED`, with its reason, and a line that is no longer needed
fails too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.guards.sources import Source, expect_none, source_of, sources

BANNED = {
    "datetime.date.today": "wall clock",
    "datetime.datetime.now": "wall clock",
    "datetime.datetime.today": "wall clock",
    "datetime.datetime.utcnow": "wall clock",
    "pandas.Timestamp.now": "wall clock",
    "pandas.Timestamp.today": "wall clock",
    "time.ctime": "wall clock",
    "time.gmtime": "wall clock",
    "time.localtime": "wall clock",
    "time.strftime": "wall clock",
    "time.time": "wall clock",
    "time.time_ns": "wall clock",
    "os.environ": "environment",
    "os.environb": "environment",
    "os.getenv": "environment",
    "os.urandom": "chance",
    "numpy.random.default_rng": "chance",
    "numpy.random.rand": "chance",
    "numpy.random.randn": "chance",
    "numpy.random.seed": "chance",
    "uuid.uuid1": "chance",
    "uuid.uuid4": "chance",
    "os.listdir": "unsorted listing",
    "os.scandir": "unsorted listing",
    "os.walk": "unsorted listing",
    "glob.glob": "unsorted listing",
    "glob.iglob": "unsorted listing",
    "hash": "hash order",
}
BANNED_MODULES = {"random": "chance", "secrets": "chance", "pickle": "code from data"}
LISTINGS = {"glob", "iterdir", "rglob", "walk"}
ORDERED_BY = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
MATERIALISED_BY = {"dict.fromkeys", "enumerate", "iter", "list", "next", "tuple", "zip"}

# (path, finding) -> why it is right there. Findings are those of `findings` below.
ALLOWED: dict[tuple[str, str], str] = {
    ("backtester/runs/folder.py", "wall clock: datetime.datetime.now"): (
        "created_at of a run's manifest, which is in no hash"
    ),
    ("backtester/spending/purse.py", "wall clock: datetime.datetime.now"): (
        "paid_at of the spend ledger and recorded_at of a stored reply, which are in no key or hash"
    ),
    ("backtester/leaks/clock.py", "wall clock: time.localtime"): (
        "the moved clock itself: what an audited pipeline asks instead of the real one"
    ),
    ("backtester/freeze/freezing.py", "wall clock: datetime.datetime.now"): (
        "the capture time of a snapshot, which is in no id; a freeze is made in real time"
    ),
    ("backtester/cli/environment.py", "environment: os.environ"): (
        "the one reader of the environment; everything below is handed values"
    ),
}


def findings(source: Source) -> Iterator[tuple[str, int]]:
    """Yield each thing that could differ between two runs, with its line."""
    parents = {
        child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)
    }
    for name, line in source.imports():
        if name.split(".")[0] in BANNED_MODULES:
            yield f"{BANNED_MODULES[name.split('.')[0]]}: import {name}", line
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = source.dotted(node)
            if name in BANNED:
                yield f"{BANNED[name]}: {name}", node.lineno
        if (
            isinstance(node, ast.Call)
            and is_listing(node)
            and not is_ordered(node, parents, source)
        ):
            yield "unsorted listing: " + ast.unparse(node.func), node.lineno
        for iterated in iterables(node, source):
            if is_set(iterated, source):
                yield "hash order: " + ast.unparse(iterated), iterated.lineno


def is_listing(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in LISTINGS


def is_ordered(node: ast.AST, parents: dict[ast.AST, ast.AST], source: Source) -> bool:
    """Say whether the nearest call around an expression puts it into an order or needs none."""
    while isinstance(parent := parents.get(node), ast.expr | ast.comprehension):
        if isinstance(parent, ast.Call) and node in parent.args:
            return source.dotted(parent.func) in ORDERED_BY
        if isinstance(parent, ast.SetComp):
            return True
        node = parent
    return False


def iterables(node: ast.AST, source: Source) -> Iterator[ast.expr]:
    """Yield what a node goes through in order."""
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        for part in node.generators:
            yield part.iter
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        joins = isinstance(node.func, ast.Attribute) and node.func.attr == "join"
        if joins or source.dotted(node.func) in MATERIALISED_BY:
            yield from node.args


def is_set(node: ast.expr, source: Source) -> bool:
    if isinstance(node, ast.Call):
        return source.dotted(node.func) in {"set", "frozenset"}
    return isinstance(node, ast.Set | ast.SetComp)


def test_no_module_reads_a_clock_environment_chance_or_accidental_order() -> None:
    expect_none(
        f"{source.path}:{line} {finding}"
        for source in sources()
        for finding, line in findings(source)
        if (source.path, finding) not in ALLOWED
    )


def test_each_exception_is_still_needed() -> None:
    found = {(source.path, finding) for source in sources() for finding, _ in findings(source)}
    expect_none(sorted(set(ALLOWED) - found))


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import datetime as dt\nnow = dt.now()",
        "import datetime\nday = datetime.date.today()",
        "import time\nstart = time.time",
        "from os import environ\nkey = environ['KEY']",
        "import os\nkey = os.getenv('KEY')",
        "import random",
        "from random import choice",
        "import numpy as np\nrng = np.random.default_rng()",
        "from uuid import uuid4\nname = uuid4()",
        "files = list(folder.iterdir())",
        "for file in folder.glob('*'):\n    pass",
        "names = [file.name for file in folder.rglob('*')]",
        "for word in {'a', 'b'}:\n    pass",
        "text = ','.join(set(words))",
        "text = [word for word in {word for word in words}]",
        "key = hash(text)",
        "import pickle",
    ],
)
def test_the_guard_sees(text: str) -> None:
    assert list(findings(source_of(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import time\nstart = time.perf_counter()",
        "files = sorted(folder.iterdir())",
        "names = sorted(file.name for file in folder.glob('*'))",
        "empty = not any(folder.iterdir())",
        "for word in sorted({'a', 'b'}):\n    pass",
        "known = word in {'a', 'b'}",
        "import numpy as np\nrng = np.random.Generator(np.random.PCG64(7))",
    ],
)
def test_the_guard_lets_pass(text: str) -> None:
    assert list(findings(source_of(text))) == []
