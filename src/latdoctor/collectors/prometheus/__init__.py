"""Metrics pages: scraped over a window, or saved in files."""
