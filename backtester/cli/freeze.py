"""Command ``freeze``: vendors, or files, become a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backtester.cli.environment import data_folder, environment
from backtester.cli.runs import DataDir, whole
from backtester.errors import ProviderError, VerificationFailed
from backtester.texts.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from backtester.freeze.check import Checked
    from backtester.freeze.freezing import Frozen, Step, Way

_AGENT_VARIABLE = "BACKTESTER_USER_AGENT"
_MOST_TOLD = 20

# Both are held by tests: they do what they say.
OWN_VENDOR = """\
# own.py; then: PYTHONPATH=. backtester freeze --vendor bars=own:Vendor ...
import pyarrow as pa
from backtester.calendar import calendar_of
from backtester.schema import TABLES, known_at_bar
from backtester.vendors.asked import options_of
from backtester.vendors.base import Capture, NoData
class Vendor:
    name = "own"
    tables = frozenset({"bars"})   # what it can fill
    key_variable = None            # or the variable that holds its key
    def __init__(self, settings):  # api_key, user_agent, timeout_s, sleep
        self.settings = settings
    def capture(self, wanted):
        # wanted: table, instrument, symbol, start, end, captured_at, options
        options = options_of(self.name, wanted, {})
        if wanted.symbol != "AAPL":
            # Or RateLimited, NotConfigured, BadResponse, VendorError.
            raise NoData(f"it has no {wanted.symbol}")
        day = wanted.end
        row = {
            "instrument": wanted.instrument, "session": day,
            "known_at": known_at_bar(calendar_of(wanted.instrument), day),
            "open": 10.0, "high": 12.0, "low": 9.0, "close": 11.0,
            "volume": 100, "currency": "USD",
        }
        rows = pa.Table.from_pylist([row], schema=TABLES["bars"].arrow)
        return Capture(
            rows={"bars": rows}, options=options, source="me", licence="mine"
        )
"""
CONFIG = """\
name = "mine"
symbols = ["AAPL", "NVDA"]
start = 2018-01-02
end = 2018-12-31
warmup = 0
tables = ["news"]
chains = { bars = ["files"], news = ["files"] }
[options.files.bars]
path = "prices.csv"  # symbol,date,open,high,low,close,volume
default.currency = "USD"
[options.files.news]
path = "news.csv"    # symbol,published,source,title
"""
_EPILOG = f"""\
A config file is TOML with the words of the flags:

\b
{CONFIG}
A vendor of your own is a class of this form; backtester.schema.TABLES has the columns of every
table, and --check-vendor says which rules it breaks:

\b
{OWN_VENDOR}"""

# What is said about the way and not about the plan.
_OF_THE_WAY = ("config_file", "replace", "restart", "quiet", "data_dir", "check_vendor")

Text = str | None
Texts = list[str] | None
ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file with the plan.")]
Name = Annotated[Text, typer.Option(help="Name of the snapshot.")]
Symbols = Annotated[Text, typer.Option(help="Instruments, separated by commas.")]
Benchmarks = Annotated[
    Text, typer.Option(help="Further instruments of which prices alone are taken.")
]
Start = Annotated[Text, typer.Option(help="First date, YYYY-MM-DD.")]
End = Annotated[Text, typer.Option(help="Last date, YYYY-MM-DD.")]
Warmup = Annotated[
    int | None,
    typer.Option(
        parser=whole("--warmup"),
        metavar="INTEGER",
        help="Sessions before the first date that are taken as well; default 250.",
    ),
]
Tables = Annotated[
    Text, typer.Option(help="Tables, separated by commas; bars are always among them.")
]
Vendors = Annotated[
    Texts,
    typer.Option(
        "--vendor",
        help="TABLE=VENDOR,VENDOR: the chain of a table; or one chain for all. Repeatable.",
    ),
]
Options = Annotated[
    Texts,
    typer.Option(
        "--option",
        help="VENDOR.TABLE.OPTION=VALUE, such as files.bars.path=prices.csv. Repeatable.",
    ),
]
Extends = Annotated[
    Text, typer.Option("--extend", help="Snapshot that is extended into the new one.")
]
OnChange = Annotated[
    Text, typer.Option(help="Where a vendor changed a value: keep the old one, or take it.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Put it in the place of a snapshot of that name.")
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Drop what an unfinished freeze has kept.")
]
CheckVendor = Annotated[
    Text,
    typer.Option(
        metavar="package.module:Class",
        help="Store nothing: put this vendor through the rules of vendors and say what it breaks.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("freeze", epilog=_EPILOG)(freeze)


def freeze(
    context: typer.Context,
    config_file: ConfigFile = None,
    name: Name = None,
    symbols: Symbols = None,
    benchmarks: Benchmarks = None,
    start: Start = None,
    end: End = None,
    warmup: Warmup = None,
    tables: Tables = None,
    vendors: Vendors = None,
    options: Options = None,
    extends: Extends = None,
    on_change: OnChange = None,
    replace: Replace = False,
    restart: Restart = False,
    quiet: Quiet = False,
    data_dir: DataDir = None,
    check_vendor: CheckVendor = None,
) -> None:
    """Freeze vendor data, or files, into a snapshot; the same command goes on if it was stopped."""
    from backtester.freeze.freezing import Way, capture_instant, load_plan, settings_from
    from backtester.freeze.freezing import freeze as run

    folder = data_folder(data_dir)
    flags = {word: value for word, value in context.params.items() if word not in _OF_THE_WAY}
    agent = environment().get(_AGENT_VARIABLE, "").strip() or None
    way = Way(
        settings_of=settings_from(environment(), user_agent=agent),
        progress=_silent if quiet else _tell,
        replace=replace,
        restart=restart,
    )
    if check_vendor is not None:
        _check(check_vendor, config_file, flags, way)
        return
    plan = load_plan(config_file, flags, data_dir=folder)
    _show(run(plan, folder, captured_at=capture_instant(), way=way))


def _check(vendor: str, config_file: Path | None, flags: Mapping[str, Any], way: Way) -> None:
    from backtester.freeze.check import RULES, tables_of
    from backtester.freeze.check import check_vendor as checked
    from backtester.freeze.freezing import capture_instant, load_plan

    given = {word: value for word, value in flags.items() if value is not None}
    usual = {"name": "check", "warmup": 0, "vendors": [vendor]}
    if config_file is None:
        usual["tables"] = ",".join(tables_of(vendor))
    plan = load_plan(config_file, {**usual, **given})
    found = checked(vendor, plan, captured_at=capture_instant(), settings_of=way.settings_of)
    for each in found:
        _tell_checked(each, len(RULES))
    if any(each.breaches for each in found):
        raise VerificationFailed(f"vendor {vendor} breaks rules of vendors, named above: mend it")
    if all(each.reason for each in found):
        raise ProviderError(
            f"vendor {vendor} had no row to be judged by: name a symbol and a range that it has"
        )


def _tell_checked(each: Checked, rules: int) -> None:
    where = f"{each.table} of {each.subject}"
    if each.reason:
        typer.echo(printable(f"{where}: not judged, it has none: {each.reason}", keep=""))
    elif not each.breaches:
        typer.echo(f"{where}: keeps all {rules} rules")
    for breach in each.breaches:
        typer.echo(printable(f"{where}: breaks '{breach.rule}': {breach.message}", keep=""))


def _tell(step: Step) -> None:
    if step.reason:
        said = f"none: {step.reason}"
    else:
        kept = " (kept from before)" if step.kept else ""
        said = f"{step.rows} rows from {step.vendor}{kept}"
    line = f"[{step.done}/{step.total}] {step.table} {step.subject}: {said}"
    typer.echo(printable(line, keep=""), err=True)


def _silent(step: Step) -> None:
    """Tell nothing."""


def _show(frozen: Frozen) -> None:
    snapshot = frozen.snapshot
    if frozen.already:
        typer.echo(
            f"snapshot {snapshot.name} was frozen by this plan already; nothing was asked "
            "(--replace asks again)"
        )
    for name, entry in sorted(snapshot.manifest.tables.items()):
        typer.echo(f"{name}: {entry.rows} rows")
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(snapshot.manifest.absent.items()):
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        typer.echo(printable(f"absent: {', '.join(names)}: {reason}", keep=""))
    findings = snapshot.manifest.findings
    for finding in findings[:_MOST_TOLD]:
        where = " ".join(str(word) for word in (finding.instrument, finding.session) if word)
        words = (finding.kind, where, finding.message)
        typer.echo(printable(": ".join(word for word in words if word), keep=""))
    if len(findings) > _MOST_TOLD:
        typer.echo(
            f"... and {len(findings) - _MOST_TOLD} more: backtester snapshot show {snapshot.name}"
        )
    typer.echo(f"snapshot {snapshot.name}, id {snapshot.id}, in {snapshot.path}")
