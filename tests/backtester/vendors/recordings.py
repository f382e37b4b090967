"""HTTP exchanges with vendors, recorded by vcrpy in ``cassettes/vendors``.

``python -m tests.backtester.vendors.recordings`` makes all of them anew. What answers is a loopback
server in the vendor's own form, so a fresh recording has the same bytes. Of a request only method,
path, query and body are kept, without the key; a replay matches on all of them and records nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import vcr

from backtester.vendors.alpha_vantage import AlphaVantage
from backtester.vendors.base import Capture, Vendor, VendorSettings, Wanted
from backtester.vendors.fred import Fred
from backtester.vendors.polymarket import Polymarket
from backtester.vendors.reddit import Reddit
from backtester.vendors.stocktwits import StockTwits
from tests.backtester.vendors import (
    test_alpha_vantage,
    test_fred,
    test_polymarket,
    test_reddit,
    test_sec,
    test_stocktwits,
)
from tests.support.page_server import Asked, Page, PageServer, page, settings_for, wanted_of
from tests.support.sec_pages import Edgar
from tests.support.vendor_trouble import SECRET

FOLDER = Path(__file__).parents[3] / "cassettes" / "vendors"
# Stands in the recordings for the loopback address, whose port is another each time.
ADDRESS = "http://recorded.invalid"
_SECRETS = frozenset({"api_key", "apikey", "token"})


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Hold one recording: which vendor asks for what, and who answers."""

    build: Callable[[VendorSettings], Vendor]
    wanted: Wanted
    answer: Callable[[Asked], Page]

    @property
    def other(self) -> Recording:
        """The same with a question that nobody has recorded."""
        company = {"options": {"cik": "789019"}} if self.build is test_sec.sec else {}
        return replace(self, wanted=replace(self.wanted, symbol="OTHER", **company))


RECORDINGS: Mapping[str, Recording] = {
    "fred": Recording(
        build=Fred,
        wanted=wanted_of("macro", "cpi", "2023-01-03", "2024-06-28", instrument=""),
        answer=test_fred.Alfred({"CPIAUCSL": test_fred.CPI}),
    ),
    "polymarket": Recording(
        build=Polymarket,
        wanted=wanted_of(
            "prediction_markets", "fed-cuts-in-march", "2024-01-02", "2024-03-15", instrument=""
        ),
        answer=test_polymarket.Exchange([test_polymarket.CUT], test_polymarket.PRICES),
    ),
    "stocktwits": Recording(
        build=StockTwits,
        wanted=wanted_of("social", "AAPL", "2026-11-23", "2026-11-27"),
        answer=lambda asked: test_stocktwits.stream(test_stocktwits.NEWEST, test_stocktwits.OLDER),
    ),
    "reddit": Recording(
        build=Reddit,
        wanted=wanted_of(
            "social", "AAPL", "2026-11-23", "2026-11-27", options={"subreddits": "stocks"}
        ),
        answer=lambda asked: test_reddit.listing(test_reddit.NEWEST, test_reddit.OLDER),
    ),
    "alpha_vantage": Recording(
        build=AlphaVantage,
        wanted=test_alpha_vantage.BARS,
        answer=lambda asked: page(test_alpha_vantage.APPLE[asked.query["function"]]),
    ),
    "sec": Recording(build=test_sec.sec, wanted=test_sec.YEARS, answer=Edgar()),
    "sec_insider": Recording(
        build=test_sec.sec,
        wanted=test_sec.TRADES,
        answer=test_sec.insiders(test_sec.ownership(test_sec.trade(), test_sec.trade(code="F"))),
    ),
}


def captured(recording: Recording, settings: VendorSettings) -> Capture:
    """Return what the vendor of a recording captures."""
    return recording.build(settings).capture(recording.wanted)


def tape(name: str, *, folder: Path = FOLDER, record: bool = False) -> Any:
    """Return the context in which an exchange is replayed, or recorded."""
    return vcr.VCR(
        record_mode="all" if record else "none",
        match_on=("method", "path", "query", "body"),
        before_record_request=_bare_request,
        before_record_response=_bare_response,
        decode_compressed_response=True,
    ).use_cassette(str(folder / f"{name}.yaml"))


def record(folder: Path) -> list[Path]:
    """Record every exchange anew and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, recording in RECORDINGS.items():
        file = folder / f"{name}.yaml"
        file.unlink(missing_ok=True)
        with PageServer(recording.answer) as server, tape(name, folder=folder, record=True):
            captured(recording, settings_for(server, api_key=SECRET))
        made.append(file)
    return made


def _bare_request(request: Any) -> Any:
    request.headers = {}
    parts = urlsplit(request.uri)
    kept = [(key, text) for key, text in parse_qsl(parts.query) if key.lower() not in _SECRETS]
    request.uri = ADDRESS + parts.path + (f"?{urlencode(kept)}" if kept else "")
    return request


def _bare_response(response: dict[str, Any]) -> dict[str, Any]:
    response["headers"] = {
        name.lower(): values
        for name, values in response["headers"].items()
        if name.lower() == "content-type"
    }
    return response


if __name__ == "__main__":
    for path in record(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        sys.stdout.write(f"recorded {path}\n")
