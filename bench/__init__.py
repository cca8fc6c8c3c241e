"""Benchmarks. Run each from the repository's root as a module: `python -m bench.startup --help`."""
