"""One module per source: reading it, and parsing what was read."""
