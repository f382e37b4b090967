"""Which XBRL tags stand for which line item, and which forms count for what.

A tag changes its name over the years, and companies choose among several. The first tag of an item
that a filing uses *for a period* gives that item for that period; another filing may use another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tradingagents_core.statements import BALANCE, CASHFLOW, COVER, INCOME

GAAP: Final = "us-gaap"
IFRS: Final = "ifrs-full"
DEI: Final = "dei"

ANNUAL_FORMS: Final = frozenset(
    {"10-K", "10-K/A", "10-KT", "10-KT/A", "10-K405", "20-F", "20-F/A", "40-F", "40-F/A"}
)
INTERIM_FORMS: Final = frozenset({"10-Q", "10-Q/A", "10-QT", "10-QT/A", "6-K", "6-K/A"})

MONEY: Final = "money"
SHARES: Final = "shares"
PER_SHARE: Final = "money/shares"


@dataclass(frozen=True, kw_only=True)
class ItemTags:
    """Say which tags stand for an item.

    Attributes:
        statement: Statement it belongs to.
        item: Its name.
        measure: ``money``, ``shares`` or ``money/shares``.
        tags: (taxonomy, tag), best first.
        additive: Whether a quarter is the difference of two longer periods.
    """

    statement: str
    item: str
    measure: str
    tags: tuple[tuple[str, str], ...]
    additive: bool


def _item(statement: str, item: str, *gaap: str, ifrs: str = "", measure: str = MONEY) -> ItemTags:
    tags = [(GAAP, tag) for tag in gaap] + [(IFRS, tag) for tag in ifrs.split()]
    return ItemTags(
        statement=statement,
        item=item,
        measure=measure,
        tags=tuple(tags),
        additive=statement in (INCOME, CASHFLOW) and measure != SHARES,
    )


SEC_ITEMS: Final[tuple[ItemTags, ...]] = (
    _item(
        INCOME,
        "revenue",
        "Revenues",
        "RevenueFromContractWithCustomerExcludingAssessedTax",
        "RevenueFromContractWithCustomerIncludingAssessedTax",
        "SalesRevenueNet",
        "RevenuesNetOfInterestExpense",
        "SalesRevenueGoodsNet",
        ifrs="Revenue",
    ),
    _item(
        INCOME,
        "cost_of_revenue",
        "CostOfRevenue",
        "CostOfGoodsAndServicesSold",
        "CostOfGoodsSold",
        "CostOfServices",
        ifrs="CostOfSales",
    ),
    _item(INCOME, "gross_profit", "GrossProfit", ifrs="GrossProfit"),
    _item(
        INCOME,
        "research_and_development",
        "ResearchAndDevelopmentExpense",
        "ResearchAndDevelopmentExpenseExcludingAcquiredInProcessCost",
        ifrs="ResearchAndDevelopmentExpense",
    ),
    _item(
        INCOME,
        "selling_general_and_administrative",
        "SellingGeneralAndAdministrativeExpense",
        ifrs="SellingGeneralAndAdministrativeExpense",
    ),
    _item(
        INCOME,
        "operating_expenses",
        "OperatingExpenses",
        "CostsAndExpenses",
        ifrs="OperatingExpense",
    ),
    _item(
        INCOME,
        "operating_income",
        "OperatingIncomeLoss",
        ifrs="ProfitLossFromOperatingActivities",
    ),
    _item(
        INCOME,
        "interest_expense",
        "InterestExpense",
        "InterestExpenseNonoperating",
        "InterestExpenseDebt",
        ifrs="FinanceCosts",
    ),
    _item(
        INCOME,
        "pretax_income",
        "IncomeLossFromContinuingOperationsBeforeIncomeTaxes"
        "ExtraordinaryItemsNoncontrollingInterest",
        "IncomeLossFromContinuingOperationsBeforeIncomeTaxes"
        "MinorityInterestAndIncomeLossFromEquityMethodInvestments",
        ifrs="ProfitLossBeforeTax",
    ),
    _item(
        INCOME,
        "income_tax",
        "IncomeTaxExpenseBenefit",
        ifrs="IncomeTaxExpenseContinuingOperations",
    ),
    _item(
        INCOME,
        "net_income",
        "NetIncomeLoss",
        "NetIncomeLossAvailableToCommonStockholdersBasic",
        "ProfitLoss",
        ifrs="ProfitLossAttributableToOwnersOfParent ProfitLoss",
    ),
    _item(
        INCOME,
        "eps_basic",
        "EarningsPerShareBasic",
        "EarningsPerShareBasicAndDiluted",
        ifrs="BasicEarningsLossPerShare",
        measure=PER_SHARE,
    ),
    _item(
        INCOME,
        "eps_diluted",
        "EarningsPerShareDiluted",
        "EarningsPerShareBasicAndDiluted",
        ifrs="DilutedEarningsLossPerShare",
        measure=PER_SHARE,
    ),
    _item(
        INCOME,
        "shares_basic",
        "WeightedAverageNumberOfSharesOutstandingBasic",
        "WeightedAverageNumberOfShareOutstandingBasicAndDiluted",
        ifrs="WeightedAverageShares",
        measure=SHARES,
    ),
    _item(
        INCOME,
        "shares_diluted",
        "WeightedAverageNumberOfDilutedSharesOutstanding",
        "WeightedAverageNumberOfShareOutstandingBasicAndDiluted",
        ifrs="AdjustedWeightedAverageShares",
        measure=SHARES,
    ),
    _item(
        BALANCE,
        "cash",
        "CashAndCashEquivalentsAtCarryingValue",
        "CashCashEquivalentsRestrictedCashAndRestrictedCashEquivalents",
        ifrs="CashAndCashEquivalents",
    ),
    _item(
        BALANCE,
        "short_term_investments",
        "MarketableSecuritiesCurrent",
        "AvailableForSaleSecuritiesCurrent",
        "AvailableForSaleSecuritiesDebtSecuritiesCurrent",
        "ShortTermInvestments",
    ),
    _item(
        BALANCE,
        "receivables",
        "AccountsReceivableNetCurrent",
        "ReceivablesNetCurrent",
        ifrs="TradeAndOtherCurrentReceivables",
    ),
    _item(BALANCE, "inventory", "InventoryNet", ifrs="Inventories"),
    _item(BALANCE, "current_assets", "AssetsCurrent", ifrs="CurrentAssets"),
    _item(
        BALANCE,
        "long_term_investments",
        "MarketableSecuritiesNoncurrent",
        "AvailableForSaleSecuritiesNoncurrent",
        "LongTermInvestments",
    ),
    _item(
        BALANCE,
        "property_plant_equipment",
        "PropertyPlantAndEquipmentNet",
        "PropertyPlantAndEquipmentAndFinanceLeaseRightOfUseAssetAfterAccumulatedDepreciation"
        "AndAmortization",
        ifrs="PropertyPlantAndEquipment",
    ),
    _item(BALANCE, "goodwill", "Goodwill", ifrs="Goodwill"),
    _item(BALANCE, "total_assets", "Assets", ifrs="Assets"),
    _item(
        BALANCE,
        "accounts_payable",
        "AccountsPayableCurrent",
        "AccountsPayableTradeCurrent",
        ifrs="TradeAndOtherCurrentPayables",
    ),
    _item(
        BALANCE,
        "short_term_debt",
        "DebtCurrent",
        "LongTermDebtCurrent",
        "ShortTermBorrowings",
        ifrs="CurrentBorrowings",
    ),
    _item(BALANCE, "current_liabilities", "LiabilitiesCurrent", ifrs="CurrentLiabilities"),
    _item(
        BALANCE,
        "long_term_debt",
        "LongTermDebtNoncurrent",
        "LongTermDebtAndCapitalLeaseObligations",
        "ConvertibleNotesPayableNoncurrent",
        ifrs="NoncurrentBorrowings",
    ),
    _item(BALANCE, "total_liabilities", "Liabilities", ifrs="Liabilities"),
    _item(
        BALANCE,
        "retained_earnings",
        "RetainedEarningsAccumulatedDeficit",
        ifrs="RetainedEarnings",
    ),
    _item(
        BALANCE,
        "equity",
        "StockholdersEquity",
        "StockholdersEquityIncludingPortionAttributableToNoncontrollingInterest",
        ifrs="EquityAttributableToOwnersOfParent Equity",
    ),
    _item(
        CASHFLOW,
        "operating_cash_flow",
        "NetCashProvidedByUsedInOperatingActivities",
        "NetCashProvidedByUsedInOperatingActivitiesContinuingOperations",
        ifrs="CashFlowsFromUsedInOperatingActivities",
    ),
    _item(
        CASHFLOW,
        "depreciation_and_amortization",
        # First, for who writes it in the cash flow may give the other one for a part in a note.
        "DepreciationAmortizationAndAccretionNet",
        "DepreciationDepletionAndAmortization",
        "DepreciationAndAmortization",
    ),
    _item(CASHFLOW, "stock_compensation", "ShareBasedCompensation"),
    _item(
        CASHFLOW,
        "capital_expenditure",
        "PaymentsToAcquirePropertyPlantAndEquipment",
        "PaymentsToAcquireProductiveAssets",
        ifrs="PurchaseOfPropertyPlantAndEquipmentClassifiedAsInvestingActivities",
    ),
    _item(
        CASHFLOW,
        "investing_cash_flow",
        "NetCashProvidedByUsedInInvestingActivities",
        "NetCashProvidedByUsedInInvestingActivitiesContinuingOperations",
        ifrs="CashFlowsFromUsedInInvestingActivities",
    ),
    _item(
        CASHFLOW,
        "dividends_paid",
        "PaymentsOfDividends",
        "PaymentsOfDividendsCommonStock",
        ifrs="DividendsPaidClassifiedAsFinancingActivities",
    ),
    _item(CASHFLOW, "share_repurchases", "PaymentsForRepurchaseOfCommonStock"),
    _item(
        CASHFLOW,
        "financing_cash_flow",
        "NetCashProvidedByUsedInFinancingActivities",
        "NetCashProvidedByUsedInFinancingActivitiesContinuingOperations",
        ifrs="CashFlowsFromUsedInFinancingActivities",
    ),
    ItemTags(
        statement=COVER,
        item="shares_outstanding",
        measure=SHARES,
        tags=((DEI, "EntityCommonStockSharesOutstanding"),),
        additive=False,
    ),
)

# Days that a period of so many months may have: weeks make 13 to a quarter, sometimes 14.
LENGTHS: Final[Mapping[int, range]] = {
    3: range(80, 106),
    6: range(170, 201),
    9: range(260, 291),
    12: range(350, 381),
}


def months_of(days: int) -> int | None:
    """Return how many months a period of so many days is, or None for an odd length."""
    return next((months for months, range_ in LENGTHS.items() if days in range_), None)
