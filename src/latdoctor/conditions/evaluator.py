"""Evaluating conditions over evidence, three-valued: holds, fails, or unknown. Unknown is never false.

Beside the truth each evaluation gives ln λ, how much nearer the evidence is to the one side than to the other:
λ = 1000^clip(ln(x/limit)/ln 1.5, −1, 1), linear to either side of the limit where `sure` bounds are given, 1000 or
1/1000 for what is simply so or not, and for a p-value below its limit the bound of Sellke, Bayarri and Berger (2001),
1/(−e·p·ln p), at most 1000; above its limit a p-value says nothing (λ = 1). `all` is the least, `any` the greatest.
`comparing.py` has the formulas; here is what they are applied to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from latdoctor.conditions.ast import (
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    CountTerm,
    Given,
    Not,
    Prefer,
    SignalTerm,
    comparisons,
)
from latdoctor.evidence.catalogue import SignalKind, catalogue
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Event, Evidence, Origin, Reading, Value, is_unknown
from latdoctor.units import format_value, spaced

LN_MAX = math.log(1000)
_LN_SPREAD = math.log(1.5)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a quantity: its value, or a bound of it. Several values are the list of an `in`."""

    values: tuple[Value, ...]
    bound: str = ""

    def range(self) -> tuple[float, float] | None:
        """From where to where the real value may lie; None for a text."""
        first = self.values[0]
        if isinstance(first, str):
            return None
        return -math.inf if self.bound == AT_MOST else first, math.inf if self.bound == AT_LEAST else first


def settled(comparison: Comparison, left: Known, right: Known) -> bool | None:
    """Whether `comparison` holds; None where a bound leaves it open."""
    spread, limits = left.range(), right.range()
    if not (left.bound or right.bound) or spread is None or limits is None:
        return _holds(comparison, left.values[0], right.values)
    if comparison.operator in ("<", "<=", ">", ">="):
        # Rising or falling in either side: the ends of the two ranges bound everything between them.
        outcomes = {_holds(comparison, value, (limit,)) for value in spread for limit in limits}
        return outcomes.pop() if len(outcomes) == 1 else None
    return (comparison.operator == "!=") if _never_meet(comparison, spread, right) else None


def of_ratio(over: str, under: str) -> str | None:
    """The bound of a ratio of two positive quantities, from the bounds of both; None where nothing is known of it."""
    if not under or over == under == "":
        return over
    mirrored = AT_MOST if under == AT_LEAST else AT_LEAST
    return mirrored if over in ("", mirrored) else None


def _never_meet(comparison: Comparison, spread: tuple[float, float], right: Known) -> bool:
    """Whether no value of `spread` is equal to (or within the tolerance of) any limit."""
    if right.bound:
        return False
    numbers = [value for value in right.values if not isinstance(value, str)]
    reach = [(n - comparison.tolerance * abs(n), n + comparison.tolerance * abs(n)) for n in numbers]
    return all(high < spread[0] or low > spread[1] for low, high in reach)


def _holds(comparison: Comparison, value: Value, limit: tuple[Value, ...]) -> bool:
    operator = comparison.operator
    if operator in ("in", "=", "!="):
        return (value in limit) != (operator == "!=")
    first = limit[0]
    if isinstance(value, str) or isinstance(first, str):
        return False
    if operator == "within":
        return abs(value - first) <= comparison.tolerance * abs(first)
    return {"<": value < first, "<=": value <= first, ">": value > first, ">=": value >= first}[operator]


def ln_lambda(comparison: Comparison, value: Value, limit: Value, *, true: bool) -> float:
    """How strongly the evidence speaks for (+) or against (−) the comparison. Of a bound: no less than this."""
    crisp = LN_MAX if true else -LN_MAX
    kind = catalogue()[comparison.left.signal].kind
    if comparison.operator in ("in", "=", "!=", "within") or isinstance(value, str) or isinstance(limit, str):
        return crisp
    if kind == "p-value":
        return _ln_p(value) if true else 0.0
    rising = comparison.operator in (">", ">=")
    if comparison.ramp is not None:
        clear, certain = comparison.ramp
        edge = certain if (value > limit) == rising else clear
        return (LN_MAX if edge == certain else -LN_MAX) * min(1.0, abs((value - limit) / (edge - limit)))
    if limit <= 0 or kind == "flag":
        return crisp
    nearness = (math.log(value) - math.log(limit)) / _LN_SPREAD if value > 0 else -math.inf
    return max(-1.0, min(1.0, nearness if rising else -nearness)) * LN_MAX


def _ln_p(p: float) -> float:
    """Sellke, Bayarri and Berger: the most that a p-value can speak for the alternative, capped."""
    if p <= 0:
        return LN_MAX
    if p >= 1 / math.e:
        return 0.0
    return min(LN_MAX, -math.log(-math.e * p * math.log(p)))


class TruthStatus(StrEnum):
    """The three values of a condition."""

    HOLDS = "holds"
    FAILS = "fails"
    UNKNOWN = "unknown"


HOLDS, FAILS, UNKNOWN = TruthStatus.HOLDS, TruthStatus.FAILS, TruthStatus.UNKNOWN

OF_ZERO = " of zero"  # added to `baseline` in Truth.missing where a multiple of it means nothing


class Atom(Struct, frozen=True):
    """One comparison as it was evaluated, for the reader: `GPU busy 7.9 % < 50 %` and where that was read."""

    signal: str
    subject: str
    value: Value | None
    shown: str  # the value with its unit
    operator: str
    limit: str  # the limit with its unit, and where it came from: "600 ms (1.5 x baseline 400 ms)"
    status: TruthStatus
    origin: Origin | None = None
    note: str = ""
    bound: str = ""  # "at least" or "at most" where no more than that is known of the value


class Truth(Struct, frozen=True):
    """The outcome for one subject. `missing` are the signals (or slo/baseline terms) that were unknown.

    `unsettled` says why the measured value does not decide: a bound that leaves it open, or too few samples.
    """

    status: TruthStatus
    ln_lambda: float = 0.0
    atoms: tuple[Atom, ...] = ()
    missing: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What conditions are evaluated over. `baseline` and `before` give a value per (signal, subject)."""

    evidence: Evidence
    slo: Mapping[str, float]
    baseline: Mapping[tuple[str, str], float]
    before: Mapping[tuple[str, str], float]


Compare = Callable[[Comparison, str, Facts], Truth]


def evaluate(condition: Condition, subject: str, facts: Facts, compare: Compare | None = None) -> Truth:
    """The truth of `condition` for `subject`, whose declared ancestors supply what it lacks itself.

    `compare` evaluates its comparisons, by default as they are written.
    """
    match condition:
        case Comparison():
            return (compare or _compare)(condition, subject, facts)
        case AllOf(parts):
            return _all([evaluate(part, subject, facts, compare) for part in parts])
        case AnyOf(parts):
            return _negated(_all([_negated(evaluate(part, subject, facts, compare)) for part in parts]))
        case Not(part):
            return _negated(evaluate(part, subject, facts, compare))
        case Given(part, given):
            return _given(evaluate(part, subject, facts, compare), evaluate(given, subject, facts, compare))
        case Prefer(first, otherwise):
            preferred = evaluate(first, subject, facts, compare)
            return preferred if preferred.status != UNKNOWN else evaluate(otherwise, subject, facts, compare)


def candidates(condition: Condition, facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The subjects with evidence or a declared gap for a signal of `condition`: the innermost, and their ancestors.

    An innermost subject inherits what it lacks. An ancestor among the rest counts only by what it shows itself.
    """
    evidence = facts.evidence
    found: dict[str, None] = {}
    for comparison in comparisons(condition):
        left = comparison.left
        if isinstance(left, CountTerm):
            found.update(dict.fromkeys(event.subject for event in evidence.events_by_signal.get(left.signal, ())))
            found.update(dict.fromkeys(subject for signal, subject in evidence.looked if signal == left.signal))
        else:
            for reading in evidence.readings_by_signal.get(left.signal, ()):
                found[reading.subject] = None
        for gap in evidence.gaps_by_signal.get(left.signal, ()):
            if gap.subject is not None:
                found[gap.subject] = None
    outer = {ancestor for subject in found for ancestor in evidence.lineage(subject)[1:]}
    return tuple(name for name in found if name not in outer), tuple(name for name in found if name in outer)


def _all(truths: list[Truth]) -> Truth:
    known = [truth.ln_lambda for truth in truths if truth.status != UNKNOWN]
    statuses = {truth.status for truth in truths}
    status = FAILS if FAILS in statuses else UNKNOWN if UNKNOWN in statuses else HOLDS
    return Truth(
        status=status,
        ln_lambda=min(known) if known and status != UNKNOWN else 0.0,
        atoms=tuple(atom for truth in truths for atom in truth.atoms),
        missing=tuple(dict.fromkeys(name for truth in truths for name in truth.missing)),
        unsettled=tuple(dict.fromkeys(why for truth in truths for why in truth.unsettled)),
    )


def _negated(truth: Truth) -> Truth:
    status = {HOLDS: FAILS, FAILS: HOLDS}.get(truth.status, UNKNOWN)
    return Truth(status, -truth.ln_lambda, truth.atoms, truth.missing, truth.unsettled)


def _given(truth: Truth, given: Truth) -> Truth:
    """`truth` where `given` holds. Where it fails, there are too few samples to decide."""
    atoms = (*truth.atoms, *given.atoms)
    if given.status == HOLDS:
        return Truth(truth.status, truth.ln_lambda, atoms, truth.missing, truth.unsettled)
    if given.status == UNKNOWN:
        missing = tuple(dict.fromkeys((*truth.missing, *given.missing)))
        return Truth(UNKNOWN, atoms=atoms, missing=missing, unsettled=given.unsettled)
    short = [atom for atom in given.atoms if atom.status != HOLDS]
    needed = tuple(f"{_shown(atom)}, and {atom.operator} {atom.limit} is needed to decide" for atom in short)
    if not needed:  # it failed by what holds, under a `not`
        needed = tuple(f"{_shown(atom)}, which is not enough to decide" for atom in given.atoms)
    return Truth(UNKNOWN, atoms=atoms, unsettled=needed)


def _shown(atom: Atom) -> str:
    return f"{atom.signal} is {atom.shown}"


def _compare(comparison: Comparison, subject: str, facts: Facts) -> Truth:
    left = comparison.left
    found = _count(left, subject, facts) if isinstance(left, CountTerm) else reading_of(left, subject, facts)
    limit, limit_text, missing = _limit(comparison, subject, facts)
    if found is None or is_unknown(found.value):
        return Truth(UNKNOWN, missing=(left.signal, *missing))
    true = None if limit is None else settled(comparison, Known((found.value,), found.bound), limit)
    status = UNKNOWN if true is None else HOLDS if true else FAILS
    atom = Atom(
        signal=str(left),
        subject=found.subject,
        value=found.value,
        shown=show(left.signal, found.value, found.bound),
        operator=_operator_text(comparison),
        limit=limit_text,
        status=status,
        origin=found.origin,
        note="; ".join(part for part in (found.note, comparison.remark) if part),
        bound=found.bound,
    )
    if limit is None:
        return Truth(UNKNOWN, atoms=(atom,), missing=missing)
    if true is None:
        why = f"{_shown(atom)}, which leaves open whether it is {atom.operator} {atom.limit}"
        return Truth(UNKNOWN, atoms=(atom,), unsettled=(why,))
    return Truth(status, ln_lambda(comparison, found.value, limit.values[0], true=true), (atom,))


def show(signal: str, value: Value, bound: str = "") -> str:
    """A signal's value with its unit, for people; a bound says so (`at least 1 s`)."""
    if isinstance(value, str):
        return value
    known = catalogue()[signal]
    if known.kind == SignalKind.FLAG:
        return "yes" if value else "no"
    # A p of 0.003 is no 0.3 % of anything.
    shown = format_value(value, "count" if known.kind == SignalKind.P_VALUE else known.dimension)
    return f"{bound} {shown}" if bound else shown


def _operator_text(comparison: Comparison) -> str:
    if comparison.operator == "within":
        return f"within {format_value(comparison.tolerance, 'ratio')} of"
    return comparison.operator


def reading_of(term: SignalTerm, subject: str, facts: Facts) -> Reading | None:
    """The reading of the subject itself or of its nearest ancestor that has one; the latest window wins."""
    readings = facts.evidence.readings_by_signal.get(term.signal, ())
    wanted = set(term.labels)
    for owner in facts.evidence.lineage(subject):
        own = [r for r in readings if r.subject == owner and wanted <= set(r.labels)]
        if own:
            return max(own, key=lambda r: (not is_unknown(r.value), -len(r.labels), r.window.end or 0.0))
    return None


def _count(term: CountTerm, subject: str, facts: Facts) -> Reading | None:
    """How many matching events the subject and its ancestors have; None where no source was searched for them.

    Where only a part was read, or more happened than was kept, these are the least that there were.
    """
    everything = events_of(CountTerm(term.signal), subject, facts)
    owners = [(term.signal, owner) for owner in facts.evidence.lineage(subject)]
    looked = any(owner in facts.evidence.looked for owner in owners)
    if not everything and not looked:
        return None
    matching = events_of(term, subject, facts)
    clipped = bool(matching) and any(owner in facts.evidence.clipped for owner in owners)
    origin = matching[0].origin if matching else Origin("", "none found")
    note = matching[0].text if matching else ""
    bound = AT_LEAST if clipped or not looked else ""
    return Reading(term.signal, subject, float(len(matching)), origin, note=note, bound=bound)


def events_of(term: CountTerm, subject: str, facts: Facts) -> tuple[Event, ...]:
    """The events that `term` counts for the subject and its ancestors."""
    lineage = facts.evidence.lineage(subject)
    return tuple(
        event
        for event in facts.evidence.events_by_signal.get(term.signal, ())
        if event.subject in lineage
        and (not term.field or (event.fields.get(term.field) in term.values) != term.excluded)
    )


def _limit(comparison: Comparison, subject: str, facts: Facts) -> tuple[Known | None, str, tuple[str, ...]]:
    """The limit (None where it is not known), its text with its source, and what was missing to know it."""
    right = comparison.right
    signal = comparison.left.signal
    if isinstance(right, Constant):
        shown = right.text
        if isinstance(comparison.left, SignalTerm) and comparison.operator != "in":
            shown = spaced(right.text)
        return Known(right.values), shown, ()
    times = "" if right.factor == 1.0 else f"{right.factor:g} x "
    value, bound, source = _referred(right.of, signal, subject, facts)
    limit = value if value is None or isinstance(value, str) else value * right.factor
    if limit is None or is_unknown(limit):
        return None, f"{times}{source} (not measured)", (source,)
    if limit == 0 and right.factor != 1 and source in ("baseline", "before") and comparison.operator != "within":
        # Five times nothing is nothing: one waiting request would be "certainly more than five times as many".
        return None, f"{times}{source} ({show(signal, limit)})", (source + OF_ZERO,)
    return Known((limit,), bound), f"{show(signal, limit, bound)} ({times}{source})", ()


def _referred(name: str, signal: str, subject: str, facts: Facts) -> tuple[Value | None, str, str]:
    """The value that a limit is a multiple of, its bound, and what to call it."""
    if name in ("baseline", "before"):
        known = facts.baseline if name == "baseline" else facts.before
        return _remembered(known, signal, subject, facts), "", name
    if name.startswith("slo."):
        return facts.slo.get(name), "", name
    reading = reading_of(SignalTerm(name), subject, facts)
    return (reading.value, reading.bound, name) if reading else (None, "", name)


def _remembered(known: Mapping[tuple[str, str], float], signal: str, subject: str, facts: Facts) -> float | None:
    """The remembered value of this subject or an ancestor; where its name changed, of the one that had the signal then.

    A name changed only if one subject had the signal then and one has it now; else it would be a sibling's value.
    """
    for owner in facts.evidence.lineage(subject):
        if (signal, owner) in known:
            return known[signal, owner]
    then = [value for (name, _), value in known.items() if name == signal]
    now = {reading.subject for reading in facts.evidence.readings_by_signal.get(signal, ())}
    return then[0] if len(then) == 1 and len(now) == 1 else None
