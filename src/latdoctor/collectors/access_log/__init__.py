"""Access logs: a line for each request, with the time it took. Often the only latency there is."""
