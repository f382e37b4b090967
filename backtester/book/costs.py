"""What trading costs: commission, slippage with a cap on participation, borrowing and cash.

Commission is a charge beside the price, slippage a worse price. Every number goes through
``+ - * /`` alone, in one order, so that it is the same double everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from backtester.errors import UsageError

BPS = 10_000.0
YEAR_DAYS = 365.0
"""Interest and borrowing accrue by calendar day, a year being so many."""
_MOST = (
    ("commission_per_share", 1e9),
    ("commission_minimum", 1e9),
    ("borrow_bps_year", 1e6),
    ("cash_rate", 10.0),
)
"""What no cost is above: past it the book's numbers end, not its money."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Say what trading and holding cost; by default nothing.

    Attributes:
        commission_bps: Of the notional at the fill price.
        commission_per_share: Book currency a share.
        commission_minimum: Book currency an order, at the least.
        slippage_bps: Worsening of each fill price.
        participation_cap: Largest part of the fill bar's volume that one order may take, or None
            for no cap; the rest of the order is cancelled.
        impact_bps: Further worsening for an order as large as the bar's volume, in proportion for
            smaller ones (at 100, an order of a tenth of the volume pays 10 bps). The order is
            taken at its size before costs.
        borrow_bps_year: Paid on the value of short positions, a year.
        cash_rate: Annual rate on the cash balance, a fraction; negative cash pays it.
    """

    commission_bps: float = 0.0
    commission_per_share: float = 0.0
    commission_minimum: float = 0.0
    slippage_bps: float = 0.0
    participation_cap: float | None = None
    impact_bps: float = 0.0
    borrow_bps_year: float = 0.0
    cash_rate: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no cost.

        Raises:
            UsageError: With what to write instead.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{field.name} is {value}: write a number")
            if value is not None and value < 0.0 and field.name != "cash_rate":
                raise UsageError(f"{field.name} is {value}: write 0 or more")
        for name in ("commission_bps", "slippage_bps", "impact_bps"):
            if getattr(self, name) >= BPS / 2.0:
                raise UsageError(f"{name} is {getattr(self, name)}: write less than 5000")
        if self.participation_cap is not None and not 0.0 < self.participation_cap <= 1.0:
            raise UsageError(
                f"participation_cap is {self.participation_cap}: write a fraction above 0, up to 1"
            )
        if self.cash_rate <= -1.0:
            raise UsageError(f"cash_rate is {self.cash_rate}: write a fraction above -1")
        for name, most in _MOST:
            if getattr(self, name) > most:
                raise UsageError(f"{name} is {getattr(self, name)}: write {most:,.0f} or less")

    @property
    def needs_volume(self) -> bool:
        """Whether a fill depends on the volume of its bar."""
        return self.participation_cap is not None or self.impact_bps > 0.0

    def slip(self, participation: float) -> float:
        """Return the worsening of a fill price as a fraction of it.

        Args:
            participation: Order over the bar's volume.
        """
        return (self.slippage_bps + self.impact_bps * participation) / BPS

    def commission(self, shares: float, price: float) -> float:
        """Return the commission of an order.

        Args:
            shares: Traded, above zero.
            price: Fill price in book currency.
        """
        charge = shares * price * self.commission_bps / BPS + shares * self.commission_per_share
        return max(charge, self.commission_minimum)

    def shares_for(self, outlay: float, price: float) -> float:
        """Return how many shares an amount buys when it pays the commission too; 0 for none.

        Args:
            outlay: Cash to spend, commission included.
            price: Fill price in book currency.
        """
        rate = self.commission_bps / BPS
        shares = outlay / (price * (1.0 + rate) + self.commission_per_share)
        if shares * (price * rate + self.commission_per_share) >= self.commission_minimum:
            return shares
        return max((outlay - self.commission_minimum) / price, 0.0)

    def shares_raising(self, proceeds: float, price: float) -> float | None:
        """Return how many shares must be sold to be left with an amount after the commission.

        None where no number of shares would do, for the commission eats what one brings.

        Args:
            proceeds: Cash to raise, above zero.
            price: Fill price in book currency.
        """
        rate = self.commission_bps / BPS
        left = price * (1.0 - rate) - self.commission_per_share
        if left <= 0.0:
            return None
        shares = proceeds / left
        if shares * (price * rate + self.commission_per_share) >= self.commission_minimum:
            return shares
        return (proceeds + self.commission_minimum) / price
