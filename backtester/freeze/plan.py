"""What a freeze is asked for: symbols, range, tables, and the exact chain of vendors of each table.

A plan is read from a TOML file, from flags, or from both (flags win), and is checked before
anything is asked of a vendor. Its `fingerprint` names the freeze: the same one goes on where it
was stopped, another one into the same name is told so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from backtester import spellings
from backtester.calendar import calendar_by_code, calendar_of
from backtester.errors import DataError, UsageError
from backtester.freeze.chains import chains_of
from backtester.markets import calendar_code
from backtester.schema import TABLES
from backtester.snapshots.manifest import SNAPSHOT_NAME
from backtester.snapshots.snapshot import open_snapshot

DEFAULT_CHAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "instruments": (),
    "bars": ("yfinance",),
    "actions": (),
    "statements": ("sec",),
    "news": ("yfinance",),
    "social": ("stocktwits",),
    "macro": ("fred",),
    "insider": ("sec",),
    "prediction_markets": ("polymarket",),
}
# What comes along with the bars where no vendor of its own is named for it.
WITH_BARS: Final = ("instruments", "actions")
# Tables whose rows are many voices: vendors joined by this sign fill them together.
JOINED: Final = ("news", "social")
JOIN: Final = "+"
_NAMED_BY_OTHERS: Final = ("data_vendors", "tool_vendors")
# Tables whose rows belong to no instrument: what is asked for is named by subject.
SUBJECTS: Final = ("macro", "prediction_markets")


def _listed(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _chained(value: object) -> object:
    if isinstance(value, Mapping):
        return {table: _listed(chain) for table, chain in value.items()}
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Day = Annotated[date, BeforeValidator(spellings.day)]
ByTable = Annotated[dict[str, Words], BeforeValidator(_chained)]


class FreezePlan(BaseModel):
    """Say what is frozen.

    Attributes:
        name: Name of the snapshot.
        symbols: Instruments.
        benchmarks: Further instruments, of which bars alone are taken.
        start: First date of the range that decisions are made in.
        end: Last one.
        warmup: Sessions before the start that are taken as well.
        tables: Tables that are filled; bars bring actions and instruments along.
        chains: Table -> vendors, in the order in which they are asked; ``a+b`` are asked together
            and fill news or posts side by side.
        subjects: ``macro`` and ``prediction_markets`` -> series or questions.
        global_news: Topics for which news that belong to no instrument are asked.
        vendor_symbols: Vendor -> instrument -> its symbol there.
        first_sessions: Instrument -> first session, for those that were listed within the range.
        last_sessions: Instrument -> last session, for those that stopped trading.
        options: Vendor -> table -> options.
        extends: Snapshot that is extended, or None.
        on_change: ``keep`` the extended snapshot's values where a vendor has changed them since,
            or ``take`` the new ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    symbols: Words
    benchmarks: Words = ()
    start: Day
    end: Day
    warmup: int = 250
    tables: Words = Field(default=("bars",), validate_default=True)
    chains: ByTable = {}
    subjects: ByTable = {}
    global_news: Words = ()
    vendor_symbols: dict[str, dict[str, str]] = {}
    first_sessions: dict[str, Day] = {}
    last_sessions: dict[str, Day] = {}
    options: dict[str, dict[str, dict[str, str]]] = {}
    extends: str | None = None
    on_change: str = "keep"

    @field_validator("name")
    @classmethod
    def _name_is_one(cls, value: str) -> str:
        if not SNAPSHOT_NAME.fullmatch(value):
            raise ValueError("is no snapshot name: write letters, digits and . _ -")
        return value

    @field_validator("symbols", "benchmarks")
    @classmethod
    def _symbols_have_a_calendar(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        words = tuple(map(spellings.symbol, value))
        for word in words:
            calendar_of(word)
        return tuple(dict.fromkeys(words))

    @field_validator("symbols")
    @classmethod
    def _something_is_asked_for(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one symbol")
        return value

    @field_validator("warmup")
    @classmethod
    def _warmup_is_bounded(cls, value: int) -> int:
        if not 0 <= value <= 10_000:
            raise ValueError("write 0 to 10000 sessions")
        return value

    @field_validator("tables")
    @classmethod
    def _tables_exist(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _require_tables(value)
        return tuple(name for name in TABLES if name in {*value, "bars", *WITH_BARS})

    @field_validator("chains", "subjects")
    @classmethod
    def _keys_are_tables(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        _require_tables(value)
        for table, words in value.items():
            if not words:
                raise ValueError(f"{table} names nothing: name something, or leave it out")
            if len(set(words)) != len(words):
                raise ValueError(f"{table} names one thing twice")
        return value

    @field_validator("subjects")
    @classmethod
    def _subjects_need_no_instrument(
        cls, value: dict[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        for table in value:
            if table not in SUBJECTS:
                raise ValueError(f"{table} has no subjects: only {' and '.join(SUBJECTS)} have")
        return value

    @field_validator("on_change")
    @classmethod
    def _change_is_settled(cls, value: str) -> str:
        if value not in ("keep", "take"):
            raise ValueError("write keep or take")
        return value

    @property
    def instruments(self) -> tuple[str, ...]:
        """All instruments, benchmarks last."""
        return tuple(dict.fromkeys((*self.symbols, *self.benchmarks)))

    @cached_property
    def declared_start(self) -> date:
        """First date that the snapshot answers for: the warm-up of every calendar lies within."""
        firsts = []
        for code in sorted(set(map(calendar_code, self.instruments))):
            calendar = calendar_by_code(code)
            sessions = calendar.sessions(self.start, self.end)
            first = sessions[0] if sessions else calendar.last_on_or_before(self.start)
            firsts.append(calendar.shift(first, -self.warmup))
        return min((*firsts, self.start))

    def chain(self, table: str) -> tuple[str, ...]:
        """Return the vendors of a table, in order; none where it comes along with the bars."""
        return self.chains.get(table, DEFAULT_CHAINS[table])

    def links(self, table: str) -> tuple[tuple[str, ...], ...]:
        """Return the chain of a table with the vendors of each link, which are asked together."""
        return tuple(_parts(link) for link in self.chain(table))

    def options_of(self, vendor: str, table: str) -> dict[str, str]:
        """Return the options of a vendor for a table."""
        given = self.options.get(vendor, {})
        return {**given.get("", {}), **given.get(table, {})}

    def symbol_at(self, vendor: str, instrument: str) -> str:
        """Return what a vendor calls an instrument."""
        return self.vendor_symbols.get(vendor, {}).get(instrument, instrument)

    @property
    def fingerprint(self) -> str:
        """Name of everything that is asked for, 16 hex digits."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _require_tables(names: object) -> None:
    for name in names if isinstance(names, Mapping | tuple) else ():
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}: write {', '.join(TABLES)}")


def load_plan(
    path: Path | None, flags: Mapping[str, Any], *, data_dir: Path | None = None
) -> FreezePlan:
    """Read a plan.

    Args:
        path: TOML file with the fields of `FreezePlan`, or None.
        flags: Values that win over the file; those that are None are not there. ``vendors`` are
            ``TABLE=VENDOR,VENDOR`` or one chain for every table, ``options`` are
            ``VENDOR.TABLE.OPTION=VALUE`` or ``VENDOR.OPTION=VALUE``. ``data_vendors`` and
            ``tool_vendors`` are chains too, by TradingAgents' names; ``chains`` win over them.
        data_dir: Where a snapshot lies that is extended: what the plan leaves out is taken from it.

    Raises:
        UsageError: Something is missing, unknown or does not fit.
    """
    document = spellings.read_toml(path, what="freeze config") if path is not None else {}
    values: dict[str, Any] = dict(document)
    values["options"] = _options(document.get("options", {}), path)
    given = {key: value for key, value in flags.items() if value is not None}
    chains, options = given.pop("vendors", ()), given.pop("options", ())
    values |= given
    if values.get("extends") is not None and data_dir is not None:
        base = _of_base(str(values["extends"]), data_dir)
        if "warmup" not in values and str(values.get("start", "")) > str(base["start"]):
            # The start that the snapshot was frozen with lies after its own: it had a warm-up.
            # Asked for less, the vendor would seem to have lost what was never asked for.
            values["start"] = base["start"]
        values = {**base, **values}
    _refuse_twice("option", options)
    for text in options:
        _set_option(values["options"], text)
    kinds = {word: _as_table(values.pop(word, {}), word) for word in _NAMED_BY_OTHERS}
    values["chains"] = {
        **_of_kinds(kinds),
        **_as_table(values.get("chains", {}), "chains"),
        **_chains(chains, values),
    }
    return _built(values, path)


def _of_base(name: str, data_dir: Path) -> dict[str, Any]:
    """Return what a plan that extends a snapshot need not say."""
    base = open_snapshot(name, data_dir)
    return {
        "symbols": base.instruments(),
        "start": base.start,
        "warmup": 0,
        "tables": tuple(base.manifest.tables),
    }


def _built(values: Mapping[str, Any], path: Path | None) -> FreezePlan:
    where = f"freeze config {path}: " if path else ""
    try:
        plan = FreezePlan(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = spellings.nearest(field, FreezePlan.model_fields)
            raise UsageError(f"{where}unknown key {spellings.shown(field)}: {near}") from error
        said = spellings.plain(
            first["type"], first["msg"], first["input"], first.get("ctx", {})
        ).removeprefix("Value error, ")
        raise UsageError(f"{where}{field}: {said}") from error
    if plan.end < plan.start:
        raise UsageError(f"{where}end {plan.end} is before start {plan.start}: swap them")
    _require_known(plan, where)
    _require_askable(plan, where)
    return plan


def _require_known(plan: FreezePlan, where: str) -> None:
    from backtester.vendors.registry import vendor_row

    for table in plan.tables:
        links = plan.links(table)
        joined = next((link for link in links if len(link) > 1), None)
        if joined is not None and table not in JOINED:
            raise UsageError(
                f"{where}{JOIN.join(joined)} cannot fill {table} together: only "
                f"{' and '.join(JOINED)} are joined; write a comma for one after the other"
            )
        for vendor in (name for link in links for name in link):
            if table not in vendor_row(vendor).tables:
                holds = ", ".join(sorted(vendor_row(vendor).tables))
                raise UsageError(
                    f"{where}vendor {vendor} cannot fill the table {table}: it has {holds}"
                )
    for table in SUBJECTS:
        if table in plan.tables and table not in plan.subjects:
            raise UsageError(f"{where}table {table} needs subjects: name them ({table} = [...])")
    for name in ("first_sessions", "last_sessions"):
        for instrument in getattr(plan, name):
            if instrument not in plan.instruments:
                raise UsageError(f"{where}{name}: {instrument} is not among the symbols")


def _require_askable(plan: FreezePlan, where: str) -> None:
    """Refuse a range that no calendar knows, and options of a vendor that there is not."""
    from backtester.vendors.registry import VENDORS

    asked = {name for table in plan.tables for link in plan.links(table) for name in link}
    for vendor in plan.options:
        if vendor not in VENDORS and vendor not in asked:
            raise UsageError(
                f"{where}options name the vendor {spellings.shown(vendor)}, which is not asked: "
                f"write one of {', '.join(sorted(asked))}"
            )
    for vendor, by_table in sorted(plan.options.items()):
        for table in sorted(by_table):
            if table in plan.tables and vendor not in {
                n for link in plan.links(table) for n in link
            }:
                raise UsageError(
                    f"{where}options.{vendor}.{table} is asked by nobody: write --vendor "
                    f"{table}={vendor}, or leave the option out"
                )
    try:
        plan.declared_start  # noqa: B018 - it is worked out here
        for code in sorted(set(map(calendar_code, plan.instruments))):
            calendar_by_code(code).sessions(plan.end, plan.end)
    except DataError as error:
        raise UsageError(f"{where}{error}: choose another range") from error


def require_over(plan: FreezePlan, captured_at: datetime) -> None:
    """Refuse a range whose last session had not closed when the capture is made.

    Raises:
        UsageError: Names the last date that can be frozen.
    """
    for symbol in plan.instruments:
        calendar = calendar_of(symbol)
        closed = calendar.last_closed(captured_at)
        if calendar.sessions(plan.start, plan.end)[-1:] > (closed,):
            raise UsageError(
                f"end {plan.end} is too late: the last session of {symbol} that is over is "
                f"{closed}; freeze up to that date"
            )
    if plan.end > captured_at.astimezone(UTC).date():
        raise UsageError(f"end {plan.end} is in the future: freeze up to a day that is over")


def _as_table(value: object, word: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{word}: {spellings.shown(value)} is no table of chains")
    return dict(value)


def _of_kinds(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return the chains that stand under TradingAgents' names for kinds of data and tools."""
    from backtester.vendors.registry import vendor_row

    chains = {
        word: {name: _words(f"{word}.{name}", chain) for name, chain in given.items()}
        for word, given in kinds.items()
    }
    vendors = {
        vendor: frozenset().union(*(vendor_row(name.strip()).tables for name in vendor.split(JOIN)))
        for given in chains.values()
        for chain in given.values()
        for vendor in chain
    }
    return chains_of(chains["data_vendors"], chains["tool_vendors"], vendors)


def _words(where: str, chain: object) -> tuple[str, ...]:
    words = _listed(chain)
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{where}: {spellings.shown(chain)} is no list of vendors")
    return tuple(words)


def _chains(texts: object, values: Mapping[str, Any]) -> dict[str, object]:
    _refuse_twice("chain", texts)
    found: dict[str, object] = {}
    for text in texts if isinstance(texts, list | tuple) else ():
        table, equals, chain = str(text).partition("=")
        if equals:
            found[table.strip()] = chain
            continue
        # One chain for all: of each table, by those vendors that can fill it.
        for name, words in _filled(_listed(table), values):
            found.setdefault(name, words)
    return found


def _filled(chain: object, values: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    vendors = chain if isinstance(chain, tuple) else ()
    wanted = _listed(values.get("tables", ("bars",)))
    options = values["options"]
    for table in TABLES:
        able = tuple(link for link in vendors if _able(link, table))
        told = any(table in options.get(name, {}) for link in able for name in _parts(link))
        # Splits and dividends come along with the bars, unless somebody says where they are.
        if able and (told if table in WITH_BARS else table in {*_texts(wanted), "bars"}):
            yield table, able


def _parts(link: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in link.split(JOIN))


def _able(link: str, table: str) -> bool:
    from backtester.vendors.registry import vendor_row

    return all(table in vendor_row(name).tables for name in _parts(link))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _options(value: object, path: Path | None) -> dict[str, dict[str, dict[str, str]]]:
    """Return options by vendor and table; of those for all tables the table is empty."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    if not isinstance(value, Mapping):
        raise UsageError(f"options: {spellings.shown(value)} is no table of vendors")
    for vendor, given in value.items():
        if not isinstance(given, Mapping):
            raise UsageError(f"options.{vendor}: {spellings.shown(given)} is no table of options")
        for key, item in given.items():
            table = key if key in TABLES and isinstance(item, Mapping) else ""
            flat = found.setdefault(str(vendor), {}).setdefault(table, {})
            flat |= dict(_flat("", item) if table else _flat(str(key), item))
    for by_table in found.values():
        for options in by_table.values():
            if path is not None and "path" in options:
                # A path in a file is seen from that file.
                options["path"] = str(path.parent / options["path"])
    return found


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, bool):
        yield prefix, "true" if value else "false"
    elif isinstance(value, list):
        yield prefix, ",".join(map(str, value))
    else:
        yield prefix, str(value)


def _refuse_twice(what: str, texts: object) -> None:
    """Refuse a name that ``NAME=VALUE`` texts give more than once."""
    seen: set[str] = set()
    for text in texts if isinstance(texts, list | tuple) else ():
        name, equals, _ = str(text).partition("=")
        name = name.strip()
        if equals and name in seen:
            raise UsageError(f"{what} {spellings.shown(name)} is given twice: keep one of them")
        seen.add(name)


def _set_option(options: dict[str, dict[str, dict[str, str]]], text: str) -> None:
    name, equals, value = text.partition("=")
    vendor, _, rest = name.strip().partition(".")
    if not equals or not rest:
        raise UsageError(
            f"option {spellings.shown(text)} is none: write VENDOR.TABLE.OPTION=VALUE, such as "
            "files.bars.path=prices.csv"
        )
    table, _, option = rest.partition(".")
    table, option = (table, option) if table in TABLES and option else ("", rest)
    options.setdefault(vendor, {}).setdefault(table, {})[option] = value
