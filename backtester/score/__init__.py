"""What stored decisions made under some rules: books, figures, files, and the ledger of trials."""
