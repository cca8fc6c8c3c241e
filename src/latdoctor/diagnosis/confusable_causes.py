"""What distinguishes a cause from those that it is confused with, computed from the findings that each expects.

A finding that holds speaks for one cause against another by how much likelier the one makes it, P(finding | one) over
P(finding | other) with P = 1 − (1 − leak)·(1 − weight); one that is clear by 1 − P of either. As in the account of the
ranking, 10 points are ten times likelier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from msgspec import convert

from latdoctor.diagnosis.noisy_or import RULED_OUT
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet
from latdoctor.strict_yaml import load

# Twice as likely: a weaker finding does not distinguish.
MIN_POINTS = 3

_POINT = 10 / math.log(10)


@cache
def confusable_pairs() -> tuple[tuple[str, str], ...]:
    """Every pair of causes with similar symptoms, once each. Raises DefinitionError."""
    groups = convert(load(Path(__file__).with_suffix(".yaml")).plain(), list[list[str]])
    return tuple(dict.fromkeys(pair for group in groups for pair in combinations(group, 2)))


@dataclass(frozen=True, slots=True)
class Separator:
    """A finding that distinguishes two causes, and by how many points."""

    finding: Finding
    points: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another cause, what both make us see (specific findings only), and what speaks for the one and for the other,
    where it holds and where it is clear.
    """

    cause: Cause
    hard: bool  # published as hard to distinguish
    shared: tuple[Finding, ...]
    for_this: tuple[Separator, ...]
    for_this_if_clear: tuple[Separator, ...]
    for_other: tuple[Separator, ...]
    for_other_if_clear: tuple[Separator, ...]


def neighbours(cause: Cause, rules: RuleSet, pairs: Iterable[tuple[str, str]]) -> tuple[Neighbour, ...]:
    """The causes that `cause` is confused with: of `pairs` first, then those that expect some of the same findings."""
    hard = {name for pair in pairs if cause.id in pair for name in pair}
    found = [
        _neighbour(cause, other, rules, hard=other.id in hard)
        for other in rules.causes
        if other.id != cause.id and not other.disabled
    ]
    near = [one for one in found if one.hard or one.shared]
    return tuple(sorted(near, key=lambda one: (not one.hard, -len(one.shared), one.cause.id)))


def _neighbour(cause: Cause, other: Cause, rules: RuleSet, *, hard: bool) -> Neighbour:
    both = [rules.finding[name] for name in cause.expects if name in other.expects]
    return Neighbour(
        cause=other,
        hard=hard,
        shared=tuple(finding for finding in both if finding.specific),
        for_this=_separators(cause, other, _expected(cause, rules), points),
        for_this_if_clear=_separators(cause, other, _expected(other, rules), points_if_clear),
        for_other=_separators(other, cause, _expected(other, rules), points),
        for_other_if_clear=_separators(other, cause, _expected(cause, rules), points_if_clear),
    )


def _expected(cause: Cause, rules: RuleSet) -> Iterable[Finding]:
    return [rules.finding[name] for name in cause.expects if not rules.finding[name].disabled]


def _separators(
    cause: Cause, other: Cause, among: Iterable[Finding], count: Callable[[Finding, Cause, Cause], int]
) -> tuple[Separator, ...]:
    """What of `among` speaks for `cause` against `other`, the most distinctive first."""
    known = (Separator(finding, count(finding, cause, other)) for finding in among)
    return tuple(
        sorted((one for one in known if one.points >= MIN_POINTS), key=lambda one: (-one.points, one.finding.id))
    )


def points(finding: Finding, cause: Cause, other: Cause) -> int:
    """By how much `finding` speaks for `cause` against `other` where it holds, what it rules out included."""
    known = math.log(_expected_share(finding, cause) / _expected_share(finding, other))
    known += RULED_OUT * ((finding.id in cause.excluded_by) - (finding.id in other.excluded_by))
    return round(_POINT * known)


def points_if_clear(finding: Finding, cause: Cause, other: Cause) -> int:
    """By how much it speaks for `cause` against `other` where it is clear."""
    return round(_POINT * math.log((1 - _expected_share(finding, cause)) / (1 - _expected_share(finding, other))))


def _expected_share(finding: Finding, cause: Cause) -> float:
    return 1 - (1 - finding.leak) * (1 - cause.weight(finding))
