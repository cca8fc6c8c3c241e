"""A laboratory of real inference servers: how each starts, and incidents made with its own settings and processes."""
