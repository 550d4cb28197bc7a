"""Pages to records: reading, prompts, extraction, evidence; the ledger and the doors around it."""
