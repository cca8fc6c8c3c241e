"""What differs between two sets of rules, as their authors would say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum

from msgspec import Struct

from latdoctor.conditions.ast import Comparison, Condition, comparisons
from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.evaluate import FIRED
from latdoctor.diagnosis.result import Against, CauseShift, Check, CheckShift, Contrast, Diagnosis, Place
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from latdoctor.evidence.diff import Difference
from latdoctor.evidence.speed import speed_change
from latdoctor.units import format_value

SCHEMA_VERSION = "1"

_PLACES = ("where", "area")  # where a rule stands says nothing of what it does
_SHARES = ("leak", "usual")
_WORDS = 40  # a longer text is only said to be another
_OF_OVERLAYS = ("site", "shipped")  # the comparisons show that they changed


class RuleType(StrEnum):
    """What a rule file defines."""

    FINDING = "finding"
    CAUSE = "cause"


class ChangeAction(StrEnum):
    """How a rule differs from its former version."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class RuleChange(Struct, frozen=True, rename={"action": "what"}):
    """One finding or cause that was added, removed or changed."""

    kind: RuleType
    id: str
    action: ChangeAction
    details: tuple[str, ...] = ()


class IncidentChange(Struct, frozen=True):
    """What the change does to one recorded incident."""

    bundle: str
    contrast: Contrast


class RulesDifference(Struct, frozen=True):
    """Two sets of rules, and the diagnoses of recorded incidents by both."""

    old: str
    new: str
    rules: tuple[RuleChange, ...]
    incidents: tuple[IncidentChange, ...]
    schema_version: str = SCHEMA_VERSION

    @property
    def answers_changed(self) -> int:
        """Of how many incidents the verdict, or what is named, is another."""
        return sum(incident.contrast.answer_changed for incident in self.incidents)


def rule_changes(old: RuleSet, new: RuleSet) -> tuple[RuleChange, ...]:
    """Causes first, each kind in the order of ids."""
    return (*_changes(RuleType.CAUSE, old.cause, new.cause), *_changes(RuleType.FINDING, old.finding, new.finding))


def _changes(
    kind: RuleType, old: Mapping[str, Finding] | Mapping[str, Cause], new: Mapping[str, Finding] | Mapping[str, Cause]
) -> Iterator[RuleChange]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            yield RuleChange(kind, name, ChangeAction.ADDED if before is None else ChangeAction.REMOVED)
            continue
        details = tuple(_details(before, after))
        if details:
            yield RuleChange(kind, name, ChangeAction.CHANGED, details)


def _details(before: Finding | Cause, after: Finding | Cause) -> Iterator[str]:
    for field in fields(before):
        name = field.name
        was, now = getattr(before, name), getattr(after, name)
        if was == now or name in _PLACES or name in _OF_OVERLAYS:
            continue
        if name in ("when", "not_applicable_when"):
            yield from (f"{name}: {message}" for message in _conditions(was, now))
        elif name == "expects":
            yield from _expects(was, now)
        elif isinstance(was, tuple):
            yield from (f"{name}: {message}" for message in _lists(was, now))
        else:
            yield _scalar(name, was, now)


def _scalar(name: str, was: object, now: object) -> str:
    if name == "disabled":
        return str(now) if now else f"no longer {was}"
    first, second = _shown(name, was), _shown(name, now)
    if len(first) > _WORDS or len(second) > _WORDS:
        return f"{name}: reworded"
    return f"{name}: {first} → {second}"


def _shown(name: str, value: object) -> str:
    if isinstance(value, float):
        return format_value(value, "ratio") if name in _SHARES else f"{value:g}"
    return str(value) if value not in (None, "") else "none"


def _conditions(was: Condition | None, now: Condition | None) -> Iterator[str]:
    before, after = _texts(was), _texts(now)
    gone, come = list((before - after).elements()), list((after - before).elements())
    if len(gone) == len(come) == 1:
        yield f"{gone[0]} → {come[0]}"
        return
    yield from (f"no longer {text}" for text in gone)
    yield from (f"now {text}" for text in come)
    if not (gone or come):
        yield "combined otherwise"


def _texts(condition: Condition | None) -> Counter[str]:
    """Each comparison as it was written, with from where to where it speaks."""
    found: Iterable[str] = ()
    if condition is not None:
        found = (f"{one.text}{_sure(one)}" for one in comparisons(condition))
    return Counter(found)


def _sure(comparison: Comparison) -> str:
    if comparison.ramp is None:
        return ""
    clear, certain = (show(comparison.left.signal, value) for value in comparison.ramp)
    return f" (clear at {clear}, certain at {certain})"


def _expects(was: Mapping[str, float], now: Mapping[str, float]) -> Iterator[str]:
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before is None and after is not None:
            yield f"expects {name} ({format_value(after, 'ratio')})"
        elif after is None:
            yield f"expects {name} no longer"
        elif before is not None and before != after:
            yield f"expects {name}: {format_value(before, 'ratio')} → {format_value(after, 'ratio')}"


def _lists(was: tuple[object, ...], now: tuple[object, ...]) -> Iterator[str]:
    gone, come = [one for one in was if one not in now], [one for one in now if one not in was]
    if any(len(str(one)) > _WORDS for one in (*gone, *come)):
        yield "reworded"
        return
    yield from (f"no longer {one}" for one in gone)
    yield from (f"now {one}" for one in come)
    if not (gone or come):
        yield "in another order"


MOVED = 0.01  # probabilities are printed in whole per cent: less than one is no difference to anybody


def contrast(first: Diagnosis, second: Diagnosis) -> Contrast:
    """How `second` differs from `first`."""
    return Contrast(
        verdicts=(first.verdict, second.verdict),
        answers=(first.answer, second.answer),
        causes=_causes(first, second),
        checks=_checks(first, second),
    )


def against(name: str, than: str, first: Diagnosis, second: Diagnosis, values: Sequence[Difference]) -> Against:
    """How `second`, called `name`, differs from `first`, called `than`; of `values` only those that differ are kept."""
    differing = tuple(one for one in values if one.is_one)
    return Against(name, than, contrast(first, second), differing, speed_change(values))


def _causes(first: Diagnosis, second: Diagnosis) -> tuple[CauseShift, ...]:
    before, after = _places(first), _places(second)
    titles = {cause.id: cause.title for cause in (*first.causes, *second.causes)}
    names = dict.fromkeys((*after, *before))
    shifts = [CauseShift(name, titles[name], before.get(name), after.get(name)) for name in names]
    return tuple(shift for shift in shifts if _has_moved(shift))


def _places(diagnosis: Diagnosis) -> Mapping[str, Place]:
    return {
        cause.id: Place(rank, cause.probability, cause.named) for rank, cause in enumerate(diagnosis.causes, start=1)
    }


def _has_moved(shift: CauseShift) -> bool:
    before, after = shift.before, shift.after
    if before is None or after is None:
        return True
    nearly = abs(before.probability - after.probability) < MOVED
    return not (nearly and before.rank == after.rank and before.named == after.named)


def _checks(first: Diagnosis, second: Diagnosis) -> tuple[CheckShift, ...]:
    before, after = ({check.id: check for check in one.checks} for one in (first, second))
    shifts = [_check(before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    known = [shift for shift in shifts if shift.before != shift.after]
    return tuple(sorted(known, key=lambda shift: (not shift.appeared, not shift.went)))


def _check(before: Check | None, after: Check | None) -> CheckShift:
    """The shift of one check, which is in at least one of the two diagnoses."""
    shown = before if before and before.status == FIRED and not (after and after.status == FIRED) else after or before
    assert shown is not None
    return CheckShift(
        id=shown.id,
        kind=shown.kind,
        before=before.status if before else None,
        after=after.status if after else None,
        message=shown.message,
    )
