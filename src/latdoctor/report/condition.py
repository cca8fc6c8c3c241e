"""A condition in words, on a page: its comparisons stand in code spans."""

from __future__ import annotations

from latdoctor.evidence import condition_words
from latdoctor.evidence.conditions import Comparison, Condition
from latdoctor.evidence.judging import show
from latdoctor.report.view import listed


def in_words(condition: Condition) -> str:
    return condition_words.in_words(condition, _spanned)


def _spanned(comparison: Comparison) -> str:
    return f"`{listed(comparison.text)}`{_sure(comparison)}"


def _sure(comparison: Comparison) -> str:
    """From where to where a bounded quantity is in doubt."""
    if comparison.sure is None:
        return ""
    clear, certain = (show(comparison.left.signal, bound) for bound in comparison.sure)
    return f" (surely not at {clear}, surely at {certain})"
