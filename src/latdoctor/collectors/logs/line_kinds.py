"""The kinds of lines that are read besides the facts of `patterns.py`, and what finds them all in raw bytes."""

from __future__ import annotations
