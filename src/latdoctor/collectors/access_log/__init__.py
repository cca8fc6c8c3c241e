"""Access logs as a source of latency, arrivals and errors."""
