"""The views on money: what nodes and days cost, and what the cache saved."""

from __future__ import annotations

from typing import Final

from backtester.store.terms import View, col

COST_BY_NODE: Final = View(
    name="cost_by_node",
    question="Which node made how many calls, and what did they cost or save?",
    note=(
        "Sums are over known values: not_priced and not_counted say how many calls are left out, "
        "and a sum is NULL where none is known."
    ),
    key=("run_id", "node"),
    columns=(
        col("run_id", "VARCHAR", "", "Run."),
        col("node", "VARCHAR", "", "Node of the graph, or Reflector."),
        col("calls", "BIGINT", "calls", "Model calls and attempts."),
        col("hits", "BIGINT", "calls", "Served from the cache.", repeats=False),
        col("outcomes", "BIGINT", "calls", "Attempts that ended without an answer."),
        col("input_tokens", "BIGINT", "tokens", "Sent.", null="none reported", repeats=False),
        col("output_tokens", "BIGINT", "tokens", "Received.", null="none reported", repeats=False),
        col("not_counted", "BIGINT", "calls", "Without reported tokens.", repeats=False),
        col(
            "cached_tokens",
            "BIGINT",
            "tokens",
            "Of those sent: found in a cache of the provider's own.",
            null="none reported",
            repeats=False,
        ),
        col("cost_usd", "DOUBLE", "USD", "Paid; hits cost 0.", null="none known", repeats=False),
        col("saved_usd", "DOUBLE", "USD", "Saved by hits.", null="none known", repeats=False),
        col("not_priced", "BIGINT", "calls", "With an unknown price.", repeats=False),
    ),
    sql="""
SELECT run_id, node, count(*) AS calls,
    count(*) FILTER (hit) AS hits,
    count(*) FILTER (starts_with(finish_reason, 'outcome:')) AS outcomes,
    sum(input_tokens)::BIGINT AS input_tokens,
    sum(output_tokens)::BIGINT AS output_tokens,
    count(*) FILTER (input_tokens IS NULL OR output_tokens IS NULL) AS not_counted,
    sum(cached_tokens)::BIGINT AS cached_tokens,
    exact_sum(cost_usd) AS cost_usd,
    exact_sum(saved_usd) AS saved_usd,
    count(*) FILTER (cost_usd IS NULL) AS not_priced
FROM llm_calls
GROUP BY run_id, node""",
)

COST_BY_DAY: Final = View(
    name="cost_by_day",
    question="What was paid on which day?",
    note=(
        "From the spend ledger, so calls count that a killed or repeated command paid for. Days "
        "are those of the wall clock in UTC. Sums are over known values."
    ),
    key=("run_id", "day"),
    columns=(
        col("run_id", "VARCHAR", "", "Run."),
        col("day", "DATE", "date", "Day of the payment, UTC.", repeats=False),
        col("calls", "BIGINT", "calls", "Paid calls.", repeats=False),
        col("input_tokens", "BIGINT", "tokens", "Sent.", null="none reported", repeats=False),
        col("output_tokens", "BIGINT", "tokens", "Received.", null="none reported", repeats=False),
        col("not_counted", "BIGINT", "calls", "Without reported tokens.", repeats=False),
        col("cost_usd", "DOUBLE", "USD", "Paid.", null="none known", repeats=False),
        col("not_priced", "BIGINT", "calls", "With an unknown price.", repeats=False),
    ),
    sql="""
SELECT run_id, paid_at::DATE AS day, count(*) AS calls,
    sum(input_tokens)::BIGINT AS input_tokens,
    sum(output_tokens)::BIGINT AS output_tokens,
    count(*) FILTER (input_tokens IS NULL OR output_tokens IS NULL) AS not_counted,
    exact_sum(cost_usd) AS cost_usd,
    count(*) FILTER (cost_usd IS NULL) AS not_priced
FROM spend
GROUP BY run_id, paid_at::DATE""",
)

CACHE_EFFICIENCY: Final = View(
    name="cache_efficiency",
    question="How much did the cache spare?",
    note="One row for each run and node. Sums are over known values.",
    key=("run_id", "node"),
    columns=(
        col("run_id", "VARCHAR", "", "Run."),
        col("node", "VARCHAR", "", "Node of the graph, or Reflector."),
        col("hits", "BIGINT", "calls", "Served from the cache.", repeats=False),
        col("misses", "BIGINT", "calls", "Made.", repeats=False),
        col("hit_rate", "DOUBLE", "fraction", "hits / (hits + misses).", repeats=False),
        col("saved_usd", "DOUBLE", "USD", "Saved.", null="none known", repeats=False),
        col("saved_tokens", "BIGINT", "tokens", "In and out.", null="none known", repeats=False),
        col(
            "made_tokens",
            "BIGINT",
            "tokens",
            "Of calls that were made, free or paid.",
            null="none reported",
            repeats=False,
        ),
        col("not_priced", "BIGINT", "calls", "Hits with an unknown price.", repeats=False),
    ),
    sql="""
SELECT run_id, node,
    count(*) FILTER (hit) AS hits,
    count(*) FILTER (NOT hit) AS misses,
    count(*) FILTER (hit) / count(*) AS hit_rate,
    exact_sum(CASE WHEN hit THEN saved_usd END) AS saved_usd,
    sum(input_tokens + output_tokens) FILTER (hit)::BIGINT AS saved_tokens,
    sum(input_tokens + output_tokens) FILTER (NOT hit)::BIGINT AS made_tokens,
    count(*) FILTER (hit AND saved_usd IS NULL) AS not_priced
FROM llm_calls
GROUP BY run_id, node""",
)
