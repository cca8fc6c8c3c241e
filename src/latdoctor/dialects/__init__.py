"""Dialects: one YAML file per server or exporter that maps its metrics to signals, and the code that evaluates them."""
