"""Makes the ledger of what was copied before one was kept: what is missing, both logs compared, the chunks written."""
