"""FRED and ALFRED: economic series with every vintage, each known from its release on.

A series is asked for its whole real-time history, so that a value stands with the day on which it
was released and a revision is a row of its own. The database answers for 2,000 vintages at most;
a daily series is asked in pieces, and what a piece only carries over from the one before is left
out. A series without vintages is captured with today's values, each marked as estimated by a lag
that is stated for its frequency: whether anybody is shown them is the view's to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from backtester.errors import UsageError
from backtester.schema import TABLES, known_at_day
from backtester.vendors.asked import options_of, whole
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    VendorSettings,
    Wanted,
)
from backtester.vendors.release_times import DATABASE_ZONE, known_at_vintage, stated_release
from backtester.vendors.web import Answer, fetch, object_of
from tradingagents_core.llm.reading import blank
from tradingagents_core.tools.series import series_of

_ADDRESS: Final = "https://api.stlouisfed.org"
_BEGINNING: Final = date(1776, 7, 4)
_PAGE: Final = 100_000
# One vintage a day at most, so that a piece of so many days stays within the limit.
_PIECE_DAYS: Final = 2_000
_TOO_MANY_VINTAGES: Final = "maximum number of vintage dates"
_NO_VINTAGES: Final = "does not exist in alfred"
_NO_SERIES: Final = "does not exist"
_KEY_WORDS: Final = "api_key"
# From the end of a period, by the frequency as the database writes it.
_LAG_DAYS: Final[Mapping[str, int]] = {
    "D": 1, "W": 7, "BW": 7, "M": 45, "Q": 90, "SA": 120, "A": 180,
}  # fmt: skip
_MONTHS: Final[Mapping[str, int]] = {"M": 1, "Q": 3, "SA": 6, "A": 12}
_DEFAULTS: Final[Mapping[str, str]] = {"history_days": "1100"}


@dataclass(frozen=True, kw_only=True)
class _About:
    """Hold what the database says of a series."""

    series: str
    title: str
    units: str
    frequency: str


@dataclass(frozen=True, kw_only=True)
class _Observation:
    """Hold one value: its period, and the days from and to which it was the one in force."""

    period: date
    vintage: date | None
    until: date
    value: str


@dataclass(frozen=True, kw_only=True)
class _Ask:
    """Name the observations of one request: from a first period on, in a span of vintages."""

    series: str
    first: date
    since: date
    until: date


class _TooManyVintages(Exception):
    """Report that the span of vintages has to be cut."""


class Fred:
    """Capture macro series; the symbol is a series id or a plain word for one."""

    name = "fred"
    tables = frozenset({"macro"})

    def __init__(self, settings: VendorSettings) -> None:
        self._settings = settings
        self._base = (settings.base_url or _ADDRESS).rstrip("/") + "/fred/series"

    def capture(self, wanted: Wanted) -> Capture:
        """Return every vintage of one series; see `Vendor.capture` for the errors."""
        if not self._settings.api_key:
            raise NotConfigured("fred needs a key: set FRED_API_KEY (free on fred.stlouisfed.org)")
        options = options_of(self.name, wanted, _DEFAULTS)
        back = timedelta(days=whole(self.name, options, "history_days", least=0))
        about = self._about(_series_id(wanted.symbol))
        captured = wanted.captured_at.astimezone(ZoneInfo(DATABASE_ZONE)).date()
        ask = _Ask(
            series=about.series,
            first=wanted.start - back,
            since=_BEGINNING,
            until=min(wanted.end, captured),
        )
        found = self._vintages(ask)
        if found is None:
            found = self._without_vintages(ask, about)
            rows, missing = _estimated_rows(found, about), _missing(found)
            notes = [f"{about.series} has no vintages: today's values, with estimated releases"]
        else:
            rows, missing = _vintage_rows(found, about), _missing(found)
            notes = list(_notes(found, about.series))
        end = _end(wanted)
        kept = [row for row in rows if row["known_at"] <= end]
        if not kept:
            raise NoData(f"fred has no value of {about.series} released up to {ask.until}")
        notes += [f"{missing} observations without a value were left out"] if missing else []
        return Capture(
            rows={"macro": pa.Table.from_pylist(kept, schema=TABLES["macro"].arrow)},
            dropped_undated=sum(1 for row in found if row.vintage is None),
            notes=tuple(notes),
            options={
                **options,
                "series_id": about.series,
                "observation_start": ask.first.isoformat(),
                "realtime_start": ask.since.isoformat(),
                "realtime_end": ask.until.isoformat(),
            },
            source=f"{self._base}/observations?series_id={about.series}",
            licence="FRED's terms of use; a series can have an owner with terms of its own",
        )

    # -- requests

    def _about(self, series: str) -> _About:
        listed = self._get("", {"series_id": series}).get("seriess")
        row = listed[0] if isinstance(listed, list) and listed else None
        if not isinstance(row, dict) or str(row.get("id", "")).upper() != series:
            told = row.get("id") if isinstance(row, dict) else row
            raise BadResponse(f"fred was asked for the series {series} and told of {told!r:.40}")
        return _About(
            series=series,
            title=str(row.get("title") or series),
            units=str(row.get("units") or "unknown"),
            frequency=str(row.get("frequency_short") or ""),
        )

    def _vintages(self, ask: _Ask) -> list[_Observation] | None:
        """Return the observations of all vintages; None where the series has no vintages."""
        try:
            return self._piece(ask)
        except _TooManyVintages:
            return list(_joined(self._pieces(ask)))

    def _pieces(self, ask: _Ask) -> Iterator[tuple[date, list[_Observation]]]:
        since = ask.first
        while since <= ask.until:
            until = min(ask.until, since + timedelta(days=_PIECE_DAYS - 1))
            piece = _Ask(series=ask.series, first=ask.first, since=since, until=until)
            yield since, self._piece(piece) or []
            since = until + timedelta(days=1)

    def _piece(self, ask: _Ask) -> list[_Observation] | None:
        found: list[_Observation] = []
        while True:
            params = {
                "series_id": ask.series,
                "observation_start": ask.first.isoformat(),
                "realtime_start": ask.since.isoformat(),
                "realtime_end": ask.until.isoformat(),
                "limit": str(_PAGE),
                "offset": str(len(found)),
            }
            page = self._get("/observations", params, vintages=True)
            if not page:
                return None
            rows, count = page.get("observations"), page.get("count")
            if not isinstance(rows, list) or not isinstance(count, int):
                raise BadResponse(f"fred sent no list of observations of {ask.series}")
            found += [_observation(row, ask.series) for row in rows]
            if len(found) >= count:
                return found
            if not rows:
                raise BadResponse(
                    f"fred sent {len(found)} of {count} observations of {ask.series}: try again"
                )

    def _without_vintages(self, ask: _Ask, about: _About) -> list[_Observation]:
        if about.frequency not in _LAG_DAYS:
            raise NoData(f"{ask.series} has the unknown frequency {about.frequency!r:.20}")
        params = {
            "series_id": ask.series,
            "observation_start": ask.first.isoformat(),
            "observation_end": ask.until.isoformat(),
            "limit": str(_PAGE),
        }
        rows = self._get("/observations", params).get("observations")
        if not isinstance(rows, list):
            raise BadResponse(f"fred sent no list of observations of {ask.series}")
        return [_observation(row, ask.series) for row in rows]

    def _get(
        self, path: str, params: Mapping[str, str], *, vintages: bool = False
    ) -> dict[str, Any]:
        """Return an answer; with `vintages` an empty one where the series has none."""
        key = self._settings.api_key or ""
        query = {**params, "file_type": "json", "api_key": key}
        refused = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
        answer = fetch(self._settings, self._base + path, query, also=refused)
        if answer.status in refused:
            return self._refusal(answer, params["series_id"], vintages=vintages)
        return object_of(answer)

    def _refusal(self, answer: Answer, series: str, *, vintages: bool) -> dict[str, Any]:
        said = " ".join(str(object_of(answer).get("error_message", "")).split())
        told = blank(said, self._settings.api_key)[:200]
        folded = said.lower()
        if _KEY_WORDS in folded:
            raise NotConfigured(f"fred refused the key ({told}): check FRED_API_KEY")
        if vintages and _TOO_MANY_VINTAGES in folded:
            raise _TooManyVintages
        if vintages and _NO_VINTAGES in folded:
            return {}
        if _NO_SERIES in folded:
            raise NoData(f"fred has no series {series}: write an id as on fred.stlouisfed.org")
        raise BadResponse(f"fred refused to give {series} ({told})")


def _series_id(word: str) -> str:
    if not word.strip():
        raise UsageError("fred is asked for one series at a time: name series, such as cpi, DGS10")
    known = series_of(word)
    return known[0] if known else word.strip().upper()


def _observation(row: object, series: str) -> _Observation:
    if not isinstance(row, dict):
        raise BadResponse(f"fred sent an observation of {series} that is none")
    try:
        vintage = row.get("realtime_start")
        return _Observation(
            period=date.fromisoformat(row["date"]),
            vintage=date.fromisoformat(vintage) if vintage else None,
            until=date.fromisoformat(row.get("realtime_end") or "9999-12-31"),
            value=str(row["value"]).strip(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadResponse(f"fred sent an observation of {series} that cannot be read") from error


def _joined(
    pieces: Iterable[tuple[date, list[_Observation]]],
) -> Iterator[_Observation]:
    """Yield the observations of all pieces, without those that a piece carries over.

    A piece stamps what was in force on its first day with that day. Where the piece before ended
    with the same value, nothing was released on that day.
    """
    carried: dict[date, str] = {}
    for since, rows in pieces:
        ahead = {}
        for row in sorted(rows, key=lambda row: (row.period, row.vintage or since)):
            if row.vintage != since or carried.get(row.period) != row.value:
                yield row
            # The newest vintage comes last; it is the one in force where the piece ends.
            ahead[row.period] = row.value
        carried = ahead


def _vintage_rows(found: Iterable[_Observation], about: _About) -> Iterator[dict[str, Any]]:
    for row in found:
        if row.vintage is not None and row.value != ".":
            known_at = known_at_vintage(about.series, row.vintage)
            yield _row(about, row, known_at, "published")


def _estimated_rows(found: Iterable[_Observation], about: _About) -> Iterator[dict[str, Any]]:
    for row in found:
        if row.value != ".":
            released = _period_end(row.period, about.frequency) + timedelta(
                days=_LAG_DAYS[about.frequency]
            )
            yield _row(about, row, known_at_day(released, DATABASE_ZONE), "estimated")


def _row(about: _About, row: _Observation, known_at: datetime, basis: str) -> dict[str, Any]:
    return {
        "series": about.series,
        "name": about.title,
        "period": row.period,
        "known_at": known_at,
        "known_at_basis": basis,
        "value": _number(row.value, about.series),
        "unit": about.units,
    }


def _number(text: str, series: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadResponse(f"fred sent {text!r:.40} as a value of {series}, which is no number")
    return value


def _period_end(period: date, frequency: str) -> date:
    months = _MONTHS.get(frequency, 0)
    if not months:
        return period
    month = period.month - 1 + months
    return date(period.year + month // 12, month % 12 + 1, 1) - timedelta(days=1)


def _missing(found: Iterable[_Observation]) -> int:
    return sum(1 for row in found if row.value == ".")


def _notes(found: Iterable[_Observation], series: str) -> Iterator[str]:
    first = min((row.vintage for row in found if row.vintage is not None), default=None)
    if first is not None:
        yield f"vintages of {series} begin on {first}; nothing of it is known before"
    release = stated_release(series)
    if release is None:
        yield f"no release time of {series} is stated: known at the end of the vintage's day"


def _end(wanted: Wanted) -> datetime:
    """Return the instant after which nothing is wanted."""
    return min(wanted.captured_at.astimezone(UTC), known_at_day(wanted.end, DATABASE_ZONE))
