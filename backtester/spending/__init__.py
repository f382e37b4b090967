"""What model calls cost: prices, the ledger of paid calls, caps, and the bill."""
