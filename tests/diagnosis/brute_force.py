"""The ranking's formula written down plainly, by weights instead of logarithms: what `network` is held against.

For a set C of causes: weight(C) = odds(C) · Π (λ·P + 1 − P)^(share/T) · (1/50)^(members ruled out), where
P = 1 − (1 − leak)·Π (1 − w) is how often C makes the finding hold. All sets of two; of three as well where the best
set leaves a specific finding unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from latdoctor.conditions.ast import AllOf
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rule_schema import Cause, Finding, RuleSet

Chosen = frozenset[str]
NOTHING: Chosen = frozenset()
ELSE: Chosen = frozenset({"other"})


@dataclass(frozen=True)
class World:
    """Rules and what was seen of them: ln λ of each fired or clear finding, and the findings that do not apply."""

    rules: RuleSet
    seen: Mapping[str, float]
    not_applicable: frozenset[str] = frozenset()

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(self._check(finding) for finding in self.rules.findings)

    def _check(self, finding: Finding) -> Check:
        ln_lambda = self.seen.get(finding.id, 0.0)
        status = "fired" if ln_lambda > 0 else "clear" if finding.id in self.seen else "not-evaluated"
        status = "not-applicable" if finding.id in self.not_applicable else status
        return Check(
            finding.id, status, finding.message, finding.tier, finding.kind, "", False, (),
            ln_lambda if status in ("fired", "clear") else 0.0, (),
        )  # fmt: skip


def finding(name: str, leak: float = 0.02, kind: str = "specific", usual: float = 0.0, group: str = "") -> Finding:
    tier = "application" if kind == "specific" else ""
    return Finding(name, name, AllOf(()), leak, "small", "small.yaml:1", tier=tier, kind=kind, usual=usual, group=group)


def cause(name: str, prior: float = 1.0, excluded_by: tuple[str, ...] = (), **expects: float) -> Cause:
    return Cause(name, name, "application", "warning", prior, expects, "c.yaml:1", excluded_by=excluded_by)


def posterior(world: World, temperature: float) -> dict[Chosen, float] | None:
    """P of every set; None where a tie leaves it open whether sets of three are summed."""
    causes = _applying(world)
    observed = {name: value for name, value in world.seen.items() if name not in world.not_applicable and value}
    scale = max(_scale([cause.prior for cause in causes]), 0.00366)

    def weight(chosen: Sequence[Cause], other: bool = False) -> float:
        found = 0.2 if other else math.prod(scale * cause.prior for cause in chosen)
        for name, ln_lambda in observed.items():
            of = world.rules.finding[name]
            held = _else_expects(of) if other else 0.0
            missed = (1 - of.leak) * (1 - held) * math.prod(1 - _weight(cause, of) for cause in chosen)
            members = [abs(observed[f.id]) for f in world.rules.findings if f.group == of.group and f.id in observed]
            share = abs(ln_lambda) / sum(members) if of.group else 1.0
            found *= (math.exp(ln_lambda) * (1 - missed) + missed) ** (share / temperature)
        out = [cause for cause in chosen if any(observed.get(name, 0.0) > 0 for name in cause.excluded_by)]
        return found * 0.02 ** len(out)

    weights: dict[Chosen, float] = {NOTHING: weight(()), ELSE: weight((), other=True)}
    for size in (1, 2):
        for chosen in combinations(causes, size):
            weights[frozenset(cause.id for cause in chosen)] = weight(chosen)
    top = max(weights.values())
    best = [chosen for chosen, found in weights.items() if found > top * (1 - 1e-9)]
    needed = {_unexplained(world, observed, chosen) for chosen in best}
    if len(needed) == 2:
        return None
    if needed == {True}:
        for chosen in combinations(causes, 3):
            weights[frozenset(cause.id for cause in chosen)] = weight(chosen)
    total = sum(weights.values())
    return {chosen: found / total for chosen, found in weights.items()}


def _applying(world: World) -> list[Cause]:
    """A cause goes where none of the specific findings that it expects applies."""

    def own(cause: Cause) -> list[str]:
        return [name for name in cause.expects if world.rules.finding[name].kind == "specific"]

    return [cause for cause in world.rules.causes if set(own(cause)) - world.not_applicable]


def _weight(of: Cause, what: Finding) -> float:
    return of.expects.get(what.id, what.usual)


def _else_expects(what: Finding) -> float:
    return {"symptom": 0.8, "error": 0.3, "specific": min(0.04, 2 * what.leak)}[what.kind]


def _unexplained(world: World, observed: Mapping[str, float], chosen: Chosen) -> bool:
    members = [cause for cause in world.rules.causes if cause.id in chosen]
    return any(
        value > 0
        and world.rules.finding[name].kind == "specific"
        and all(_weight(cause, world.rules.finding[name]) < 0.5 for cause in members)
        for name, value in observed.items()
    )


def _scale(priors: Sequence[float]) -> float:
    """By bisection: single causes and pairs together weigh 0.4 where ∅ weighs 0.5 (and `other` 0.1)."""

    def mass(scale: float) -> float:
        return scale * sum(priors) + scale**2 * sum(one * two for one, two in combinations(priors, 2))

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mass(middle) < 0.8 else (low, middle)
    return low
