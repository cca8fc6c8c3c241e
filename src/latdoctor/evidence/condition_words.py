"""A condition in words, for a reader: the whole of it, with its alternatives. Comparisons stand as they are written."""

from __future__ import annotations

from collections.abc import Callable

from latdoctor.evidence.conditions import AllOf, AnyOf, Comparison, Condition, Given, Not, Prefer

Said = Callable[[Comparison], str]


def _as_written(comparison: Comparison) -> str:
    return comparison.text


def in_words(condition: Condition, said: Said = _as_written) -> str:
    """Such as: a > 4 and (b < 1; where that is not known, c > 2). `said` says each comparison."""
    match condition:
        case Comparison():
            return said(condition)
        case AllOf(parts):
            return " and ".join(_part(part, said) for part in parts)
        case AnyOf(parts):
            return " or ".join(_part(part, said) for part in parts)
        case Not(part):
            return f"not {_part(part, said)}"
        case Given(part, given):
            return f"{_part(part, said)}, unknown unless {_part(given, said)}"
        case Prefer(first, otherwise):
            return f"{_part(first, said)}; where that is not known, {_part(otherwise, said)}"


def _part(condition: Condition, said: Said) -> str:
    """`condition` as a part of another one: in brackets where it has parts of its own."""
    if isinstance(condition, AllOf | AnyOf) and len(condition.parts) == 1:
        return _part(condition.parts[0], said)
    told = in_words(condition, said)
    return told if isinstance(condition, Comparison | Not) else f"({told})"
