"""PyRCA's hypothesis testing on the recordings of the diagnosis benchmark, in its own environment."""
