"""A Prometheus server queried over its HTTP API: the judged window and the history before it."""
