"""Taking prompts, secrets, addresses and user ids out of raw artifacts."""
