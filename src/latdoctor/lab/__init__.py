"""The laboratory: a real inference server, its load and its faults. It and diagnosis never import one another."""
