"""Commission and slippage, each by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backtester.book.costs import Costs
from backtester.errors import UsageError


def test_commission_is_bps_of_the_notional_plus_so_much_a_share_and_at_least_its_minimum() -> None:
    costs = Costs(commission_bps=10, commission_per_share=0.01, commission_minimum=2.0)

    # 100 * 50 = 5,000; 10 bps of it 5, and 100 shares at 0.01 are 1
    assert costs.commission(100, 50.0) == pytest.approx(6.0, abs=1e-12)
    # 10 * 50 = 500; 0.50 and 0.10 are 0.60, less than 2
    assert costs.commission(10, 50.0) == 2.0


def test_an_amount_buys_the_shares_that_it_can_pay_with_their_commission() -> None:
    costs = Costs(commission_bps=10, commission_per_share=0.05, commission_minimum=2.0)

    # A share costs 50 + 0.05 + 0.05 = 50.10: 5,010 buy 100, whose commission is 10
    assert costs.shares_for(5_010.0, 50.0) == pytest.approx(100.0, abs=1e-12)
    # 502 would buy 10.02 at a commission of 1.002: the minimum of 2 leaves 500, 10 shares
    assert costs.shares_for(502.0, 50.0) == pytest.approx(10.0, abs=1e-12)
    assert costs.shares_for(1.5, 50.0) == 0.0


def test_an_amount_is_raised_by_the_shares_whose_price_is_left_after_commission() -> None:
    costs = Costs(commission_bps=10, commission_per_share=0.05, commission_minimum=2.0)

    # A share brings 50 - 0.05 - 0.05 = 49.90
    assert costs.shares_raising(4_990.0, 50.0) == pytest.approx(100.0, abs=1e-12)
    # The minimum: 498 + 2 = 500, 10 shares
    assert costs.shares_raising(498.0, 50.0) == pytest.approx(10.0, abs=1e-12)
    assert Costs(commission_per_share=50.0).shares_raising(1.0, 50.0) is None


def test_slippage_is_a_constant_and_a_part_that_grows_with_the_share_of_the_volume() -> None:
    costs = Costs(slippage_bps=5, impact_bps=100)

    # 5 bps, and a tenth of 100 bps
    assert costs.slip(0.1) == pytest.approx(0.0015, abs=1e-18)
    assert Costs(slippage_bps=5).slip(0.9) == 0.0005


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("commission_bps", -1.0),
        ("commission_bps", 5000.0),
        ("slippage_bps", math.nan),
        ("commission_minimum", math.inf),
        ("participation_cap", 0.0),
        ("participation_cap", 1.5),
        ("impact_bps", 6000.0),
        ("cash_rate", -1.0),
        ("cash_rate", 1e12),
        ("commission_per_share", 1e308),
        ("commission_minimum", 1.1e9),
        ("borrow_bps_year", 1e308),
    ],
)
def test_what_is_no_cost_is_refused_by_name(field: str, value: float) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(UsageError, match=field):
        Costs(**changes)


def test_by_default_nothing_costs_anything() -> None:
    assert Costs().commission(100, 50.0) == 0.0
    assert Costs().slip(1.0) == 0.0
    assert Costs(cash_rate=-0.005).cash_rate == -0.005
