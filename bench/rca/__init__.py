"""PyRCA's hypothesis testing on the recordings of the incident bench, in an environment of its own."""
