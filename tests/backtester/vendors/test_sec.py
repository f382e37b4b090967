"""EDGAR as a vendor, against a loopback server that answers in its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from backtester.errors import UsageError
from backtester.vendors.base import (
    BadResponse,
    Capture,
    NoData,
    NotConfigured,
    Vendor,
    VendorSettings,
    Wanted,
)
from backtester.vendors.registry import VENDORS
from backtester.vendors.sec import Sec
from tests.support.page_server import Page, PageServer, page, settings_for, wanted_of
from tests.support.sec_pages import (
    APPLE_FILINGS,
    NVIDIA,
    Edgar,
    columns,
    companyfacts,
    eps,
    submissions,
)
from tests.support.vendor_trouble import VendorTrouble

WHO = "Example Research research@example.org"
LIST = "submissions/CIK0000320193.json"
FACTS = "companyfacts/CIK0000320193.json"
YEARS = wanted_of("statements", "AAPL", "2018-01-02", "2018-12-31")
TRADES = wanted_of("insider", "AAPL", "2018-01-02", "2018-12-31")
FORM_4 = ("0000320193-18-000090", "4", "2018-06-05", "2018-06-05T18:30:35.000Z")
DOCUMENT = "xslF345X03/wf-form4_152823781900000.xml"


def sec(settings: VendorSettings) -> Vendor:
    return Sec(replace(settings, user_agent=WHO))


def capture(edgar: Edgar, wanted: Wanted) -> tuple[Capture, PageServer]:
    with PageServer(edgar) as server:
        return sec(settings_for(server)).capture(wanted), server


def ownership(
    *trades: str, issuer: str = "0000320193", role: str = "<isDirector>1</isDirector>"
) -> bytes:
    return (
        '<?xml version="1.0"?><ownershipDocument><documentType>4</documentType>'
        f"<issuer><issuerCik>{issuer}</issuerCik><issuerName>APPLE INC</issuerName></issuer>"
        "<reportingOwner><reportingOwnerId><rptOwnerCik>0001214128</rptOwnerCik>"
        "<rptOwnerName>LEVINSON ARTHUR D</rptOwnerName></reportingOwnerId>"
        f"<reportingOwnerRelationship>{role}</reportingOwnerRelationship></reportingOwner>"
        f"<nonDerivativeTable>{''.join(trades)}</nonDerivativeTable></ownershipDocument>"
    ).encode()


def trade(
    *, shares: str = "30000", price: str | None = "192.3", moved: str = "D", code: str = "S"
) -> str:
    cost = "<footnoteId id='F1'/>" if price is None else f"<value>{price}</value>"
    return (
        "<nonDerivativeTransaction><securityTitle><value>Common Stock</value></securityTitle>"
        "<transactionDate><value>2018-06-01</value></transactionDate><transactionCoding>"
        f"<transactionFormType>4</transactionFormType><transactionCode>{code}</transactionCode>"
        "</transactionCoding><transactionAmounts>"
        f"<transactionShares><value>{shares}</value></transactionShares>"
        f"<transactionPricePerShare>{cost}</transactionPricePerShare>"
        f"<transactionAcquiredDisposedCode><value>{moved}</value>"
        "</transactionAcquiredDisposedCode></transactionAmounts></nonDerivativeTransaction>"
    )


def insiders(body: bytes, *filings: tuple[str, str, str, str], document: str = DOCUMENT) -> Edgar:
    edgar = Edgar()
    edgar.pages[LIST] = page(submissions(filings or (FORM_4,), document=document))
    edgar.pages["wf-form4_152823781900000.xml"] = Page(body=body)
    return edgar


# -- statements


def test_statements_come_with_their_instants_source_options_and_licence() -> None:
    found, server = capture(Edgar(), YEARS)
    rows = found.rows["statements"].to_pylist()
    third = [row for row in rows if row["item"] == "eps_diluted" and row["value"] == 2.34]
    assert [row["known_at"] for row in third] == [datetime(2018, 8, 1, 20, 31, 48, tzinfo=UTC)]
    assert found.source.endswith("/api/xbrl/companyfacts/CIK0000320193.json")
    assert found.licence == VENDORS["sec"].licence
    assert found.options == {"cik": "320193", "history_days": "1150"}
    assert found.dropped_undated == 0
    assert {request.headers["user-agent"] for request in server.requests} == {WHO}
    assert [request.path for request in server.requests] == [
        "/files/company_tickers.json",
        "/submissions/CIK0000320193.json",
        "/api/xbrl/companyfacts/CIK0000320193.json",
    ]


def test_the_lists_are_asked_for_once_by_all_tables() -> None:
    with PageServer(Edgar()) as server:
        vendor = sec(settings_for(server))
        vendor.capture(YEARS)
        vendor.capture(replace(YEARS, table="instruments"))
        vendor.capture(YEARS)
    assert [request.path for request in server.requests].count("/files/company_tickers.json") == 1
    lists = [request for request in server.requests if request.path.startswith("/submissions")]
    assert len(lists) == 1


def test_older_filings_are_looked_up_in_the_pages_of_their_years_alone() -> None:
    old = {"name": "CIK0000320193-submissions-001.json", "filingCount": 5}
    older = {"name": "CIK0000320193-submissions-002.json", "filingCount": 5}
    pages = [
        {**old, "filingFrom": "2015-03-12", "filingTo": "2017-12-31"},
        {**older, "filingFrom": "1994-01-26", "filingTo": "2010-03-11"},
    ]
    edgar = Edgar()
    edgar.pages[LIST] = page(submissions(APPLE_FILINGS[3:], pages=pages))
    edgar.pages["submissions-001.json"] = page(columns(APPLE_FILINGS[:3]))
    found, server = capture(edgar, YEARS)
    assert found.notes == ()
    assert [request.path for request in server.requests if "submissions-" in request.path] == [
        "/submissions/CIK0000320193-submissions-001.json"
    ]


def test_a_page_that_names_a_file_elsewhere_is_not_followed() -> None:
    edgar = Edgar()
    bad = {"name": "../../secret.json", "filingFrom": "2015-03-12", "filingTo": "2017-12-31"}
    edgar.pages[LIST] = page(submissions(pages=[bad]))
    with pytest.raises(BadResponse, match="names a file"):
        capture(edgar, YEARS)


def test_a_company_without_facts_has_no_data() -> None:
    edgar = Edgar()
    del edgar.pages[FACTS]
    with pytest.raises(NoData, match=r"no XBRL facts of AAPL \(CIK 320193\)"):
        capture(edgar, YEARS)


def test_a_company_without_statements_in_those_years_has_no_data() -> None:
    edgar = Edgar()
    edgar.pages[FACTS] = page(companyfacts([]))
    with pytest.raises(NoData, match="no statements of AAPL"):
        capture(edgar, YEARS)


def test_a_symbol_that_is_not_in_the_list_has_no_data_and_the_message_says_what_to_do() -> None:
    with pytest.raises(NoData, match="give the option cik"):
        capture(Edgar(), replace(YEARS, symbol="TWTR"))


def test_a_symbol_of_the_past_is_found_by_its_number() -> None:
    found, server = capture(Edgar(), replace(YEARS, symbol="OLD", options={"cik": "320193"}))
    assert found.rows["statements"].num_rows > 0
    assert not any("tickers" in request.path for request in server.requests)


@pytest.mark.parametrize("option", ["cik", "history_days"])
def test_an_option_that_is_no_number_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"option {option} is"):
        capture(Edgar(), replace(YEARS, options={option: "../x"}))


def test_facts_of_another_company_are_a_bad_response() -> None:
    edgar = Edgar()
    edgar.pages[FACTS] = page(companyfacts(cik=NVIDIA, name="NVIDIA CORP"))
    with pytest.raises(BadResponse, match="about another company: 'NVIDIA CORP'"):
        capture(edgar, YEARS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cik": "0001045810", "name": "NVIDIA CORP"}, "about another company"),
        ({"tickers": ["APPL"]}, "has not the symbol AAPL"),
    ],
)
def test_a_list_of_another_company_is_a_bad_response(
    changes: Mapping[str, Any], message: str
) -> None:
    edgar = Edgar()
    edgar.pages[LIST] = page(submissions(**changes))
    with pytest.raises(BadResponse, match=message):
        capture(edgar, YEARS)


def test_the_sec_is_not_asked_without_a_name() -> None:
    with PageServer(Edgar()) as server:
        with pytest.raises(NotConfigured, match="set BACKTESTER_USER_AGENT"):
            Sec(settings_for(server)).capture(YEARS)
        assert server.requests == []


def test_a_refused_name_is_said_to_be_one() -> None:
    edgar = Edgar()
    edgar.pages["company_tickers.json"] = Page(status=403, body=b"<html>Undeclared tool</html>")
    with pytest.raises(NotConfigured, match="user agent"):
        capture(edgar, YEARS)


def test_nothing_that_became_public_after_the_capture_is_captured() -> None:
    early = datetime(2018, 8, 1, 20, 0, tzinfo=UTC)
    found, _ = capture(Edgar(), replace(YEARS, captured_at=early))
    instants: list[Any] = found.rows["statements"].column("known_at").to_pylist()
    assert max(instants) < early


# -- insiders


def test_a_trade_has_its_filing_its_day_and_the_instant_of_acceptance() -> None:
    found, server = capture(insiders(ownership(trade())), TRADES)
    assert found.rows["insider"].to_pylist() == [
        {
            "instrument": "AAPL",
            "id": "0000320193-18-000090:1",
            "form": "4",
            "transaction_date": date(2018, 6, 1),
            "known_at": datetime(2018, 6, 5, 22, 30, 35, tzinfo=UTC),
            "known_at_basis": "published",
            "insider": "LEVINSON ARTHUR D",
            "role": "director",
            "code": "S",
            "acquired": False,
            "security": "Common Stock",
            "shares": 30000.0,
            "price": 192.3,
        }
    ]
    # The folder of the filing, and the document itself rather than its picture for people.
    assert server.requests[-1].path == (
        "/Archives/edgar/data/320193/000032019318000090/wf-form4_152823781900000.xml"
    )


def test_each_line_of_a_form_is_a_trade_and_a_price_in_a_footnote_is_none() -> None:
    body = ownership(trade(), trade(price=None, moved="A", code="M"))
    found, _ = capture(insiders(body), TRADES)
    rows = found.rows["insider"].to_pylist()
    assert [(row["id"][-2:], row["acquired"], row["price"]) for row in rows] == [
        (":1", False, 192.3),
        (":2", True, None),
    ]


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("<isOfficer>true</isOfficer><officerTitle>Chief X</officerTitle>", "Chief X"),
        ("<isDirector>0</isDirector><isOther>1</isOther><otherText>adviser</otherText>", "adviser"),
        (
            "<isDirector>1</isDirector><isTenPercentOwner>1</isTenPercentOwner>",
            "director; 10% owner",
        ),
        ("", None),
    ],
)
def test_a_role_is_what_the_form_says(role: str, words: str | None) -> None:
    found, _ = capture(insiders(ownership(trade(), role=role)), TRADES)
    assert found.rows["insider"].column("role").to_pylist() == [words]


def test_trades_in_the_shares_of_another_company_are_left_out() -> None:
    with pytest.raises(NoData, match="1 forms were looked at, 0 of them could not be read"):
        capture(insiders(ownership(trade(), issuer="0000000007")), TRADES)


def test_a_form_that_is_not_in_xml_is_counted_and_named() -> None:
    old = ("0000320193-18-000001", "4", "2018-03-05", "2018-03-05T18:30:35.000Z")
    edgar = insiders(ownership(trade()), FORM_4)
    listed = submissions((FORM_4, old), document=DOCUMENT)
    listed["filings"]["recent"]["primaryDocument"][1] = "form4.txt"
    edgar.pages[LIST] = page(listed)
    found, _ = capture(edgar, TRADES)
    assert found.rows["insider"].num_rows == 1
    assert "1 forms are not in XML, the first is 0000320193-18-000001" in found.notes


@pytest.mark.parametrize(
    "body",
    [
        b"<ownershipDocument>",
        b"<html><body>no</body></html>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><ownershipDocument/>',
        b"<ownershipDocument/>",
    ],
)
def test_a_document_that_is_none_is_a_bad_response(body: bytes) -> None:
    with pytest.raises(BadResponse, match="form 4 0000320193-18-000090"):
        capture(insiders(body), TRADES)


@pytest.mark.parametrize(
    "broken",
    [trade(shares=""), trade(shares="nan"), trade(price="x"), trade().replace("2018-06-01", "")],
)
def test_a_trade_that_cannot_be_read_is_left_out_and_counted(broken: str) -> None:
    found, _ = capture(insiders(ownership(broken, trade())), TRADES)
    assert found.rows["insider"].column("id").to_pylist() == ["0000320193-18-000090:2"]
    assert "1 trades name no day or number of shares and were left out" in found.notes


def test_a_company_whose_insiders_filed_nothing_has_no_data() -> None:
    with pytest.raises(NoData, match="no trades by insiders of AAPL"):
        capture(Edgar(), TRADES)


# -- identities


def test_names_have_their_days_and_the_symbol_is_marked_as_of_today() -> None:
    wanted = wanted_of("instruments", "AAPL", "2006-01-02", "2020-12-31")
    found, _ = capture(Edgar(), wanted)
    rows = found.rows["instruments"].to_pylist()
    assert [(row["name"], row["valid_from"], row["valid_to"]) for row in rows] == [
        ("APPLE INC", date(2007, 1, 5), date(2019, 8, 6)),
        ("Apple Inc.", date(2019, 8, 6), None),
        ("APPLE COMPUTER INC", None, date(2007, 1, 5)),
    ]
    assert {(row["exchange"], row["calendar"], row["static"]) for row in rows} == {
        ("NASDAQ", "XNYS", True)
    }
    assert rows[0]["first_session"] == date(2006, 1, 3)


def test_names_of_other_years_are_left_out() -> None:
    found, _ = capture(Edgar(), wanted_of("instruments", "AAPL", "2018-01-02", "2018-12-31"))
    assert found.rows["instruments"].column("name").to_pylist() == ["APPLE INC"]


# -- trouble


class TestStatementsInTrouble(VendorTrouble):
    build = staticmethod(sec)
    wanted = YEARS
    whole = submissions()


class TestFactsInTrouble(VendorTrouble):
    """The same with the lists in order: the facts alone are in trouble."""

    wanted = YEARS
    whole = companyfacts([eps(2.34, "0000320193-18-000100", "2018-04-01", "2018-06-30")])

    @staticmethod
    def build(settings: VendorSettings) -> Vendor:
        with PageServer(Edgar()) as server:
            vendor = Sec(replace(settings_for(server), user_agent=WHO))
            vendor.capture(replace(YEARS, table="instruments"))
        made = Sec(replace(settings, user_agent=WHO))
        made._symbols, made._companies = vendor._symbols, vendor._companies
        return made
