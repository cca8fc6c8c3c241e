"""The ranking: a two-layer noisy-OR network, summed exactly over small sets of causes.

For a set C of causes a finding f is expected with P = 1 − (1 − leak)·Π(1 − w); what was seen of it weighs
factor_f(C) = ln(λP + 1 − P), so that an unknown finding weighs nothing. score(C) = prior + evidence / T + rules_out.
Sets of up to two causes are summed, sets of three over the likeliest causes where the best set leaves a specific
finding unexplained. ∅ (nothing is wrong that we look for) and `other` (something outside the catalogue) compete.
After QMR-DT (Shwe et al. 1991; Jaakkola and Jordan 1999 give the model and its exact sums).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from latdoctor.diagnosis.grounds import ruled_out_by
from latdoctor.diagnosis.judge import CLEAR, FIRED, NOT_APPLICABLE
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rules import GROUNDING, Cause, Finding, RuleSet

# With nothing known: one half that nothing is wrong, one tenth that it is something outside the catalogue.
PRIOR_NONE = 0.5
PRIOR_OTHER = 0.1
RULED_OUT = math.log(1 / 50)
THREE_AMONG = 20
# Divides the evidence: below 1, since answers at 1 are right more often than they say. Fitted on recorded incidents of
# families that were looked at, and judged on others: docs/bench.md, "The temperature".
TEMPERATURE = 0.864

OTHER = "other"
CauseSet = tuple[str, ...]
NONE: CauseSet = ()
OTHER_SET: CauseSet = (OTHER,)


@dataclass(frozen=True)
class Observation:
    """A finding of which something is known: its ln λ, and its share of its group's weight."""

    finding: Finding
    ln_lambda: float
    share: float

    def factor(self, expected: float) -> float:
        """share · ln(λP + 1 − P) for P = `expected`."""
        return self.share * math.log(math.exp(self.ln_lambda) * expected + 1 - expected)


@dataclass(frozen=True, slots=True)
class _Present:
    """Causes that are present: per observation their Π(1 − w) and how it weighs against ∅; and their score."""

    missed: Sequence[float]
    shifts: Sequence[float]
    score: float


@dataclass(frozen=True)
class Network:
    """The causes that may apply, what was observed, and the temperature that tempers the evidence."""

    causes: Mapping[str, Cause]
    observations: tuple[Observation, ...]
    ruled_out: frozenset[str]
    temperature: float = TEMPERATURE

    @classmethod
    def of(cls, rules: RuleSet, checks: Sequence[Check], temperature: float = TEMPERATURE) -> Network:
        """The network for one diagnosis; a cause all of whose specific findings do not apply is left out."""
        status = {check.id: check.status for check in checks}
        causes = {
            cause.id: cause
            for cause in rules.causes
            if cause.status != "deprecated"
            and not cause.disabled
            and any(rules.finding[f].specific and status.get(f) != NOT_APPLICABLE for f in cause.expects)
        }
        by_id = {check.id: check for check in checks}
        ruled_out = frozenset(cause.id for cause in causes.values() if ruled_out_by(cause, rules, by_id))
        return cls(causes, _observations(rules, checks), ruled_out, temperature)

    @cached_property
    def ln_priors(self) -> Mapping[str, float]:
        """ln odds of each cause against ∅, scaled so that P(∅) = ½ with nothing known."""
        mass = (1 - PRIOR_NONE - PRIOR_OTHER) / PRIOR_NONE
        odds = {name: cause.prior for name, cause in self.causes.items()}
        first = math.fsum(odds.values())  # exact, so that the order of rules means nothing
        second = (first**2 - math.fsum(value**2 for value in odds.values())) / 2
        if not odds:
            return {}
        # scale·first + scale²·second = mass, for the positive root in a form that is stable for second → 0.
        scale = 2 * mass / (first + math.sqrt(first**2 + 4 * second * mass))
        return {name: math.log(scale * value) for name, value in odds.items()}

    def prior(self, chosen: CauseSet) -> float:
        """ln of the set's weight before any evidence, against ∅."""
        if chosen == OTHER_SET:
            return math.log(PRIOR_OTHER / PRIOR_NONE)
        return sum(self.ln_priors[name] for name in chosen)

    def exclusion(self, chosen: CauseSet) -> float:
        """What findings that rule a member out weigh."""
        return sum(RULED_OUT for name in chosen if name in self.ruled_out)

    def expected(self, finding: Finding, chosen: CauseSet) -> float:
        """P(finding holds | chosen)."""
        if chosen == OTHER_SET:
            return 1 - (1 - finding.leak) * (1 - finding.other_expects)
        misses = self.misses(finding)
        missed = 1 - finding.leak
        for name in chosen:
            missed *= misses.get(name, 1.0)
        return 1 - missed

    def misses(self, finding: Finding) -> Mapping[str, float]:
        """1 − w of each cause that expects `finding`; the others leave it as it is. Thousands of sets ask for it."""
        known = self._misses_of.get(finding.id)
        if known is None:
            may = self.causes if finding.usual else self._expecting.get(finding.id, ())
            weights = {name: self.causes[name].weight(finding) for name in may}
            known = self._misses_of[finding.id] = {name: 1 - weight for name, weight in weights.items() if weight > 0}
        return known

    @cached_property
    def _expecting(self) -> Mapping[str, Sequence[str]]:
        """Per finding, the causes that say how often they make it hold."""
        found: dict[str, list[str]] = {}
        for name, cause in self.causes.items():
            for finding in cause.expects:
                found.setdefault(finding, []).append(name)
        return found

    @cached_property
    def _misses_of(self) -> dict[str, Mapping[str, float]]:
        return {}

    def evidence(self, observation: Observation, chosen: CauseSet) -> float:
        """What one observation adds to the set's score."""
        return observation.factor(self.expected(observation.finding, chosen)) / self.temperature

    def evidences(self, chosen: CauseSet) -> Sequence[float]:
        """What each observation adds to the set's score. Most expect none of its members, and weigh as without any."""
        known = self._evidences.get(chosen)
        if known is None:
            touched = {index for name in chosen if name != OTHER for index, _ in self._misses[name]}
            known = self._evidences[chosen] = [
                self.evidence(one, chosen) if index in touched or chosen == OTHER_SET else silent
                for index, (one, silent) in enumerate(zip(self.observations, self._silent, strict=True))
            ]
        return known

    @cached_property
    def _evidences(self) -> dict[CauseSet, Sequence[float]]:
        return {}

    @cached_property
    def _silent(self) -> Sequence[float]:
        """What each observation adds where no cause is present."""
        return [self.evidence(observation, NONE) for observation in self.observations]

    @cached_property
    def _misses(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """Per cause, 1 − w of each observation (by its place) that the cause expects; others it leaves as they are."""
        found: dict[str, list[tuple[int, float]]] = {name: [] for name in self.causes}
        for index, observation in enumerate(self.observations):
            for name, miss in self.misses(observation.finding).items():
                found[name].append((index, miss))
        return found

    @cached_property
    def _shifts(self) -> Sequence[dict[float, float]]:
        """Per observation, what `_shift` has found for a Π(1 − w): thousands of sets share a few products."""
        return [{1.0: 0.0} for _ in self.observations]

    def _shift(self, index: int, missed: float) -> float:
        """How an observation weighs for causes whose Π(1 − w) is `missed`, against ∅."""
        known = self._shifts[index].get(missed)
        if known is None:
            observation = self.observations[index]
            expected = 1 - (1 - observation.finding.leak) * missed
            known = observation.factor(expected) / self.temperature - self._silent[index]
            self._shifts[index][missed] = known
        return known

    @cached_property
    def _nobody(self) -> _Present:
        places = len(self.observations)
        return _Present((1.0,) * places, (0.0,) * places, sum(self._silent))

    def _joined(self, present: _Present, name: str) -> _Present:
        """The cause `name` beside those of `present`."""
        missed, shifts = list(present.missed), list(present.shifts)
        for index, miss in self._misses[name]:
            missed[index] *= miss
            shifts[index] = self._shift(index, missed[index])
        return _Present(missed, shifts, self._seen(present, name) + self._alone[name])

    def _seen(self, present: _Present, name: str) -> float:
        """The score of `present` with the evidence, but not the prior, of `name` beside it: thousands of sets ask."""
        missed, shifts, known, total = present.missed, present.shifts, self._shifts, present.score
        for index, miss in self._misses[name]:
            product = missed[index] * miss
            shift = known[index].get(product)
            total += (self._shift(index, product) if shift is None else shift) - shifts[index]
        return total

    @cached_property
    def _alone(self) -> Mapping[str, float]:
        """What each cause weighs before any evidence, with what rules it out."""
        return {name: self.prior((name,)) + self.exclusion((name,)) for name in self.causes}

    @cached_property
    def scores(self) -> Mapping[CauseSet, float]:
        """ln of the weight of every set that is summed, against ∅ before any evidence."""
        names = sorted(self.causes)
        other = sum(self.evidence(observation, OTHER_SET) for observation in self.observations)
        found = {NONE: self._nobody.score, OTHER_SET: self.prior(OTHER_SET) + other}
        single = {name: self._joined(self._nobody, name) for name in names}
        found.update({(name,): present.score for name, present in single.items()})
        for first, second in combinations(names, 2):
            found[first, second] = self._seen(single[first], second) + self._alone[second]
        best = max(found, key=lambda chosen: found[chosen])
        if self._leaves_unexplained(best):
            likeliest = sorted(names, key=lambda name: (-found[(name,)], name))[:THREE_AMONG]
            self._add_threes(found, sorted(likeliest), single)
        return found

    def _add_threes(self, found: dict[CauseSet, float], names: list[str], single: Mapping[str, _Present]) -> None:
        for place, first in enumerate(names):
            for after, second in enumerate(names[place + 1 :], place + 2):
                pair = self._joined(single[first], second)
                for third in names[after:]:
                    found[first, second, third] = self._seen(pair, third) + self._alone[third]

    def _leaves_unexplained(self, chosen: CauseSet) -> bool:
        members = [self.causes[name] for name in chosen if name != OTHER]
        return any(
            observation.finding.specific
            and observation.ln_lambda > 0
            and not any(cause.weight(observation.finding) >= GROUNDING for cause in members)
            for observation in self.observations
        )

    @cached_property
    def best_first(self) -> Sequence[CauseSet]:
        """The sets by their scores."""
        return sorted(self.scores, key=lambda chosen: -self.scores[chosen])

    @cached_property
    def posterior(self) -> Mapping[CauseSet, float]:
        """P of each set, summing to one."""
        total = ln_sum(self.scores.values())
        return {chosen: math.exp(score - total) for chosen, score in self.scores.items()}

    @cached_property
    def sets_with(self) -> Mapping[str, Sequence[tuple[CauseSet, float]]]:
        """Per cause (and `other`), the sets that hold it, with their P."""
        found: dict[str, list[tuple[CauseSet, float]]] = {name: [] for name in (*self.causes, OTHER)}
        for chosen, share in self.posterior.items():
            for name in chosen:
                found[name].append((chosen, share))
        return found

    def probability(self, *names: str) -> float:
        """P(at least one of `names` is present)."""
        if len(names) == 1:  # no set twice
            return min(1.0, sum([share for _, share in self.sets_with.get(names[0], ())]))
        holding = {chosen: share for name in names for chosen, share in self.sets_with.get(name, ())}
        return min(1.0, sum(holding.values()))

    @property
    def no_known_cause(self) -> float:
        return self.posterior[NONE] + self.posterior[OTHER_SET]


def _observations(rules: RuleSet, checks: Sequence[Check]) -> tuple[Observation, ...]:
    known = [check for check in checks if check.status in (FIRED, CLEAR) and check.ln_lambda != 0]
    known.sort(key=lambda check: check.id)
    totals: dict[str, float] = {}
    for check in known:
        group = rules.finding[check.id].group
        totals[group] = totals.get(group, 0.0) + abs(check.ln_lambda)
    made = []
    for check in known:
        finding = rules.finding[check.id]
        share = abs(check.ln_lambda) / totals[finding.group] if finding.group else 1.0
        made.append(Observation(finding, check.ln_lambda, share))
    return tuple(made)


def ln_sum(values: Iterable[float]) -> float:
    """ln Σ exp(value), −∞ for none."""
    listed = list(values)
    top = max(listed, default=-math.inf)
    return top if top == -math.inf else top + math.log(sum([math.exp(value - top) for value in listed]))
