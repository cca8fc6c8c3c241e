"""The ranking: a two-layer noisy-OR network, summed exactly over small sets of causes.

For a set C of causes a finding f is expected with P = 1 − (1 − leak)·Π(1 − w); what was seen of it weighs
factor_f(C) = ln(λP + 1 − P), so that an unknown finding weighs nothing. score(C) = prior + evidence / T + excluded_by.
Sets of up to two causes are summed, sets of three over the likeliest causes where the best set leaves a specific
finding unexplained. ∅ (nothing is wrong that we look for) and `other` (something outside the catalogue) compete.
After QMR-DT (Shwe et al. 1991; Jaakkola and Jordan 1999 give the model and its exact sums).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations

from latdoctor.diagnosis.codes import CauseStatus
from latdoctor.diagnosis.evaluate import CLEAR, FIRED, NOT_APPLICABLE
from latdoctor.diagnosis.result import Check
from latdoctor.diagnosis.rule_schema import GROUNDING, Cause, Finding, RuleSet
from latdoctor.evidence.model import kind_of


def grounding(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The specific findings that hold and that `cause` expects. `checks` are by id."""
    return tuple(
        name
        for name, weight in cause.expects.items()
        if weight >= GROUNDING and rules.finding[name].specific and _holds(name, checks)
    )


def ruled_out_by(cause: Cause, rules: RuleSet, checks: Mapping[str, Check]) -> tuple[str, ...]:
    """The findings that rule `cause` out. `checks` are by id.

    A replica that has just started says nothing about the batches of the one beside it. What holds on something of
    another kind (a host, an allocator) counts for all that may run on it or use it; where nothing points at the cause,
    everything that holds counts.
    """
    told_on = {subject for name in grounding(cause, rules, checks) for subject in checks[name].subjects}
    fired = (name for name in cause.excluded_by if _holds(name, checks))
    return tuple(name for name in fired if all(_covers(checks[name].subjects, one) for one in told_on))


def _holds(name: str, checks: Mapping[str, Check]) -> bool:
    return name in checks and checks[name].status == FIRED


def _covers(subjects: tuple[str, ...], told_on: str) -> bool:
    """Whether what holds on `subjects` bears on `told_on`: on itself, or on something of another kind."""
    return any(one == told_on or kind_of(one) != kind_of(told_on) for one in subjects)


# With nothing known: one half that nothing is wrong, one tenth that it is something outside the catalogue.
PRIOR_NONE = 0.5
PRIOR_OTHER = 0.1
LEAST_SCALE = 0.00366  # odds of a cause whose relative odds are 1: those with the fifty causes that were calibrated
RULED_OUT = math.log(1 / 50)
THREE_AMONG = 20
# Divides the evidence: below 1, since answers at 1 are right more often than they say. Fitted on recorded incidents of
# families that were looked at, and judged on others: docs/evaluation.md, "The temperature".
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
        # What a search found, though for another finding to judge, is observed: it does apply to this target.
        mute = {check.id for check in checks if check.status == NOT_APPLICABLE and not check.ln_lambda}
        causes = {
            cause.id: cause
            for cause in rules.causes
            if cause.status != CauseStatus.DEPRECATED
            and not cause.disabled
            and any(rules.finding[f].specific and f not in mute for f in cause.expects)
        }
        by_id = {check.id: check for check in checks}
        ruled_out = frozenset(cause.id for cause in causes.values() if ruled_out_by(cause, rules, by_id))
        return cls(causes, _observations(rules, checks), ruled_out, temperature)

    @cached_property
    def ln_priors(self) -> Mapping[str, float]:
        """ln odds of each cause against ∅, scaled so that P(∅) = ½ with nothing known.

        In a large catalogue P(∅) is less: a cause that is added makes none of the others less likely.
        """
        mass = (1 - PRIOR_NONE - PRIOR_OTHER) / PRIOR_NONE
        odds = {name: cause.prior for name, cause in self.causes.items()}
        first = math.fsum(odds.values())  # exact, so that the order of rules means nothing
        second = (first**2 - math.fsum(value**2 for value in odds.values())) / 2
        if not odds:
            return {}
        # scale·first + scale²·second = mass, for the positive root in a form that is stable for second → 0.
        scale = 2 * mass / (first + math.sqrt(first**2 + 4 * second * mass))
        return {name: math.log(max(scale, LEAST_SCALE) * value) for name, value in odds.items()}

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
            known = self._evidences[chosen] = [
                silent if chosen != OTHER_SET and misses.keys().isdisjoint(chosen) else self.evidence(one, chosen)
                for one, misses, silent in zip(self.observations, self._misses, self._silent, strict=True)
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
    def _misses(self) -> Sequence[Mapping[str, float]]:
        """Per observation, 1 − w of each cause that expects it."""
        return [self.misses(observation.finding) for observation in self.observations]

    @cached_property
    def _shifts(self) -> Sequence[dict[float, float]]:
        """Per observation, what `_shift` has found for a Π(1 − w): thousands of sets share a few products."""
        return [{} for _ in self.observations]

    def _shift(self, index: int, misses: Iterable[float]) -> float:
        """How an observation (by its place) weighs for causes of these 1 − w, against ∅."""
        missed = math.prod(misses)
        known = self._shifts[index].get(missed)
        if known is None:
            observation = self.observations[index]
            expected = 1 - (1 - observation.finding.leak) * missed
            known = observation.factor(expected) / self.temperature - self._silent[index]
            self._shifts[index][missed] = known
        return known

    @cached_property
    def _common(self) -> Sequence[int]:
        """The observations that every cause expects: symptoms, and most causes expect them alike."""
        return [index for index, misses in enumerate(self._misses) if len(misses) == len(self.causes)]

    @cached_property
    def _ways(self) -> Sequence[tuple[float, ...]]:
        """The ways to expect them: 1 − w of each of `_common`."""
        return sorted({self._way_of(name) for name in self.causes})

    def _way_of(self, name: str) -> tuple[float, ...]:
        return tuple(self._misses[index][name] for index in self._common)

    @cached_property
    def _way(self) -> Mapping[str, int]:
        """The place of each cause's way in `_ways`: a set's are quicker to look up than what they stand for."""
        place = {way: number for number, way in enumerate(self._ways)}
        return {name: place[self._way_of(name)] for name in self.causes}

    def _common_shift(self, *ways: int) -> float:
        """How `_common` weighs for causes that expect it in these ways (places in `_ways`), against ∅."""
        misses = zip(*(self._ways[way] for way in ways), strict=True)
        return sum(self._shift(index, of) for index, of in zip(self._common, misses, strict=True))

    def _terms(self, size: int, among: Iterable[str]) -> Mapping[CauseSet, float]:
        """What `size` causes add together beyond what fewer of them do: nothing, but where they expect one finding.

        `_common` is left out, which all expect. By inclusion and exclusion: Σ (−1)^(|C| − |S|)·shift(S) over S ⊆ C.
        """
        found: dict[CauseSet, float] = {}
        asked, common = set(among), set(self._common)
        for index, misses in enumerate(self._misses):
            expecting = () if index in common else sorted(asked & misses.keys())
            for chosen in combinations(expecting, size):
                for part in (part for few in range(1, size + 1) for part in combinations(chosen, few)):
                    shift = self._shift(index, [misses[name] for name in part]) * (-1) ** (size - len(part))
                    found[chosen] = found.get(chosen, 0.0) + shift
        return found

    @cached_property
    def scores(self) -> Mapping[CauseSet, float]:
        """ln of the weight of every set that is summed, against ∅ before any evidence."""
        names, nothing = sorted(self.causes), sum(self._silent)
        lone, pairs = self._terms(1, names), self._terms(2, names)
        alone = {name: self.prior((name,)) + self.exclusion((name,)) + lone.get((name,), 0.0) for name in names}
        way, common = self._way, cache(self._common_shift)
        other = sum(self.evidence(observation, OTHER_SET) for observation in self.observations)
        found = {NONE: nothing, OTHER_SET: self.prior(OTHER_SET) + other}
        for one in names:
            found[(one,)] = nothing + alone[one] + common(way[one])
        for one, two in combinations(names, 2):
            total = nothing + alone[one] + alone[two] + common(way[one], way[two])
            found[one, two] = total + pairs.get((one, two), 0.0)
        if not self._leaves_unexplained(max(found, key=lambda chosen: found[chosen])):
            return found
        likeliest = sorted(sorted(names, key=lambda name: (-found[(name,)], name))[:THREE_AMONG])
        threes = self._terms(3, likeliest)
        for one, two, three in combinations(likeliest, 3):
            total = nothing + alone[one] + alone[two] + alone[three] + common(way[one], way[two], way[three])
            total += pairs.get((one, two), 0.0) + pairs.get((one, three), 0.0) + pairs.get((two, three), 0.0)
            found[one, two, three] = total + threes.get((one, two, three), 0.0)
        return found

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
    known = [check for check in checks if check.status in (FIRED, CLEAR, NOT_APPLICABLE) and check.ln_lambda != 0]
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
