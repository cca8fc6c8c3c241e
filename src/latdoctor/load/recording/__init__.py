"""Loads from recorded requests: plans fitted to them, and their replay."""
