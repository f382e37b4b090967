"""The simulated book: from ratings to weights, orders, positions and equity."""
