"""A Prometheus server, asked over its HTTP API: what was so just before, and since when."""
