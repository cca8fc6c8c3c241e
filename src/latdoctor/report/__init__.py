"""Renderers of a diagnosis: console, JSON, Markdown."""
