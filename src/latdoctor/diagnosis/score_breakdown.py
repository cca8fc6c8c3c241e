"""The account of a cause's probability: what each piece of evidence contributed, adding up exactly.

The best set with the cause stands against the best set without it: prior, findings and exclusions are the differences
of the two scores, and "other explanations" is what all remaining sets add; together they are logit P. In points:
10·log10, so that ten points make the cause ten times likelier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latdoctor.diagnosis.noisy_or import NONE, OTHER_SET, CauseSet, Network, ln_sum
from latdoctor.diagnosis.result import Check, Contribution

_POINTS = 10 / math.log(10)


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of logit P, in nats; `check` is the finding behind it."""

    nats: float
    message: str
    check: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    rival: CauseSet
    terms: tuple[Term, ...]

    @property
    def logit(self) -> float:
        return sum(term.nats for term in self.terms)


def account(name: str, network: Network, checks: Sequence[Check]) -> Account:
    """Why `name` is as probable as it is."""
    scores = network.scores
    best = next(chosen for chosen in network.best_first if name in chosen)
    rival = next(chosen for chosen in network.best_first if name not in chosen)
    with_it = [scores[chosen] for chosen, _ in network.sets_with[name]]
    without = [score for chosen, score in scores.items() if name not in chosen]
    message = {check.id: check.message for check in checks}
    terms = [Term(network.prior(best) - network.prior(rival), _prior_says(best, rival))]
    pairs = zip(network.evidences(best), network.evidences(rival), strict=True)
    for observation, (ours, theirs) in zip(network.observations, pairs, strict=True):
        finding = observation.finding.id
        terms.append(Term(ours - theirs, message[finding], finding))
    excluded = network.exclusion(best) - network.exclusion(rival)
    if excluded:
        terms.append(Term(excluded, "ruled out by a finding" if excluded < 0 else "its rival is ruled out"))
    rest = (ln_sum(with_it) - scores[best]) - (ln_sum(without) - scores[rival])
    terms.append(Term(rest, "other explanations"))
    return Account(rival, tuple(terms))


def _prior_says(best: CauseSet, rival: CauseSet) -> str:
    if rival == NONE:
        return "before any evidence: most moments have no fault"
    if len(best) == len(rival):
        return "how common it is, against its rival"
    return f"{'more' if len(best) > len(rival) else 'fewer'} causes than its rival needs"


def rival_name(rival: CauseSet) -> str:
    """The rival for a person's eye."""
    named: Mapping[CauseSet, str] = {NONE: "nothing wrong", OTHER_SET: "a cause outside the catalogue"}
    return named.get(rival, " + ".join(rival))


def contributions(of: Account) -> tuple[Contribution, ...]:
    """The account in whole points that add up to the rounded total; what is under one point is folded."""
    large = [term for term in of.terms if abs(term.nats * _POINTS) >= 1]
    small = [term for term in of.terms if abs(term.nats * _POINTS) < 1 and term.nats != 0]
    exact = [term.nats * _POINTS for term in large]
    labels = [(term.message, term.check) for term in large]
    if small:
        exact.append(sum(term.nats for term in small) * _POINTS)
        labels.append((f"{len(small)} smaller finding{'s' if len(small) != 1 else ''}", None))
    rounded = _rounded(exact)
    rows = [Contribution(points, message, check) for points, (message, check) in zip(rounded, labels, strict=True)]
    return tuple(sorted(rows, key=lambda row: (row.check is None, -abs(row.points))))


def _rounded(exact: Sequence[float]) -> list[int]:
    """Whole numbers nearest to `exact` whose sum is the rounded sum (largest remainders give way)."""
    floors = [math.floor(value) for value in exact]
    missing = round(sum(exact)) - sum(floors)
    order = sorted(range(len(exact)), key=lambda i: floors[i] - exact[i])
    for i in order[: max(0, missing)]:
        floors[i] += 1
    return floors
