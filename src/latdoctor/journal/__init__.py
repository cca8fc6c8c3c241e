"""The append-only log of everything that was observed, decided and done."""
