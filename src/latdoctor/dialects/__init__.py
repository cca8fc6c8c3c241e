"""Servers and exporters as data: their metric names mapped to our signals."""
