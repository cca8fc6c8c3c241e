"""The condition language: one small, total, side-effect free language for findings and, later, for verification.

    gpu.busy_ratio < 50%                          batch.released{reason=timeout} > 1/s
    latency.p99 > slo.p99                         latency.p99 > 1.5 x baseline
    arrival.rate within 20% of before             server.backend = cpu
    count(log.xid, code in [48, 63, 79]) > 0      gpu.name in [A100, H100]

combined by `{all: […]}`, `{any: […]}`, `{not: …}` and `{prefer: …, otherwise: …}`; `{is: …, ramp: [clear, certain]}`
says from where to where a bounded quantity speaks. `{all: […], given: CONDITION}` is unknown where `given` does not
hold, for what only enough samples can show: `given: trace.kernels >= 20`. A multiple of a baseline that is zero is
unknown, and so is a comparison that "at least 1 s" does not settle.
This module holds the types; `condition_text.py` parses them and `judging.py` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Labels, Value

OPERATORS = ("<=", ">=", "!=", "<", ">", "=", "in", "within")
SLO_TERMS = {"slo.p99": "time", "slo.error_ratio": "ratio"}


@dataclass(frozen=True, slots=True)
class SignalTerm:
    """The value of a signal, with an optional label filter."""

    signal: str
    labels: Labels = ()

    def __str__(self) -> str:
        chosen = ",".join(f"{key}={value}" for key, value in self.labels)
        return f"{self.signal}{{{chosen}}}" if chosen else self.signal


@dataclass(frozen=True, slots=True)
class CountTerm:
    """How many events of a signal have a field among the given values (any event where `field` is empty)."""

    signal: str
    field: str = ""
    values: tuple[Value, ...] = ()
    excluded: bool = False

    def __str__(self) -> str:
        if not self.field:
            return f"count({self.signal})"
        listed = ", ".join(value if isinstance(value, str) else f"{value:.15g}" for value in self.values)
        return f"count({self.signal}, {self.field} {'not in' if self.excluded else 'in'} [{listed}])"


@dataclass(frozen=True, slots=True)
class Reference:
    """`factor` times another thing: a signal, or this signal's `baseline`, its value `before`, or an SLO term."""

    of: str
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal: a quantity in base units, a text, or the list of an `in`."""

    values: tuple[Value, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    left: SignalTerm | CountTerm
    operator: str
    right: Reference | Constant
    text: str
    tolerance: float = 0.0  # of `within`
    ramp: tuple[float, float] | None = None  # (clear, certain) in base units
    remark: str = ""  # what a reader of its outcome must know: "site threshold, shipped > 87 °C"


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class Given:
    """`part` where `given` holds (there are enough samples), else unknown."""

    part: Condition
    given: Condition


@dataclass(frozen=True, slots=True)
class Prefer:
    """`first` where it can be evaluated (it needs a baseline that may be absent), else `otherwise`."""

    first: Condition
    otherwise: Condition


Condition = Comparison | AllOf | AnyOf | Not | Given | Prefer


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Every comparison in `condition`, in reading order."""
    match condition:
        case Comparison():
            yield condition
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from comparisons(part)
        case Not(part):
            yield from comparisons(part)
        case Given(part, given):
            yield from comparisons(part)
            yield from comparisons(given)
        case Prefer(first, otherwise):
            yield from comparisons(first)
            yield from comparisons(otherwise)


def mapped(condition: Condition, change: Callable[[Comparison], Comparison]) -> Condition:
    """`condition` with every comparison in it put through `change`."""
    match condition:
        case Comparison():
            return change(condition)
        case AllOf(parts):
            return AllOf(tuple(mapped(part, change) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(mapped(part, change) for part in parts))
        case Not(part):
            return Not(mapped(part, change))
        case Given(part, given):
            return Given(mapped(part, change), mapped(given, change))
        case Prefer(first, otherwise):
            return Prefer(mapped(first, change), mapped(otherwise, change))


def signals_of(condition: Condition) -> tuple[str, ...]:
    """The signals that `condition` speaks of, each once."""
    found: dict[str, None] = {}
    for comparison in comparisons(condition):
        found[comparison.left.signal] = None
        if isinstance(comparison.right, Reference) and comparison.right.of in catalogue():
            found[comparison.right.of] = None
    return tuple(found)


def against_baseline(condition: Condition) -> frozenset[str]:
    """The signals that `condition` compares with their baseline."""
    return frozenset(
        comparison.left.signal
        for comparison in comparisons(condition)
        if isinstance(comparison.right, Reference) and comparison.right.of == "baseline"
    )


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
    known = in_words(condition, said)
    return known if isinstance(condition, Comparison | Not) else f"({known})"
