"""Whether the statistics hold their level: thousands of histories without an effect, or with one.

``python -m benchmarks.soak`` prints the table that is in `docs/statistics.md`; the tests run a
small sample of it.
"""
