"""A condition in words, for a reader: the whole of it, with its alternatives. Comparisons stand in code spans."""

from __future__ import annotations

from latdoctor.evidence.conditions import AllOf, AnyOf, Comparison, Condition, Given, Not, Prefer
from latdoctor.evidence.judging import show
from latdoctor.report.view import listed


def in_words(condition: Condition) -> str:
    """Such as: a > 4 and (b < 1; where that is not known, c > 2)."""
    match condition:
        case Comparison():
            return f"`{listed(condition.text)}`{_sure(condition)}"
        case AllOf(parts):
            return " and ".join(_part(part) for part in parts)
        case AnyOf(parts):
            return " or ".join(_part(part) for part in parts)
        case Not(part):
            return f"not {_part(part)}"
        case Given(part, given):
            return f"{_part(part)}, unknown unless {_part(given)}"
        case Prefer(first, otherwise):
            return f"{_part(first)}; where that is not known, {_part(otherwise)}"


def _part(condition: Condition) -> str:
    """`condition` as a part of another one: in brackets where it has parts of its own."""
    if isinstance(condition, AllOf | AnyOf) and len(condition.parts) == 1:
        return _part(condition.parts[0])
    told = in_words(condition)
    return told if isinstance(condition, Comparison | Not) else f"({told})"


def _sure(comparison: Comparison) -> str:
    """From where to where a bounded quantity is in doubt."""
    if comparison.sure is None:
        return ""
    clear, certain = (show(comparison.left.signal, bound) for bound in comparison.sure)
    return f" (surely not at {clear}, surely at {certain})"
