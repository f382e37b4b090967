"""The audit that nothing of the future reaches a decision."""
