"""Metrics pages: scraped over a window, or read from files."""
