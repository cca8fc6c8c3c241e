"""Where to look next: the unread sources whose findings would say most about the cause."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from latdoctor.diagnosis.evaluate import NOT_EVALUATED, Provider
from latdoctor.diagnosis.noisy_or import NONE, OTHER, CauseSet, Network
from latdoctor.diagnosis.result import Check, Diagnosis, NextSource, RankedCause
from latdoctor.diagnosis.rule_schema import Finding, RuleSet
from latdoctor.evidence.model import CoverageStatus, kind_of

MIN_BITS = 0.01
_NO_SHARE = 1e-12  # of all probability: the thousands of sets with less, together, move no eighth digit of a bit
MAX_LOOKS = 3
Shares = Mapping[str, Sequence[tuple[CauseSet, float]]]


def next_looks(
    rules: RuleSet, network: Network, checks: Sequence[Check], providers: Sequence[Provider]
) -> tuple[NextSource, ...]:
    """The unread sources by the mutual information between their findings and the set of causes, best first.

    The information of several findings of one source is summed, an upper bound where they overlap.
    """
    # What the site disabled no look would show.
    unknown = [c.id for c in checks if c.status == NOT_EVALUATED and not rules.finding[c.id].disabled]
    shown_by = {
        provider: [name for name in unknown if provider.may_settle(rules.finding[name])] for provider in providers
    }
    sets = _telling(network)
    # Only of what a source may show: the sum over all sets costs more than the diagnosis itself.
    bits = {name: _information(rules.finding[name], network, sets) for name in set().union(*shown_by.values())}
    looks = []
    for provider, shown in shown_by.items():
        shown.sort(key=lambda name: (-bits[name], name))
        total = sum(bits[name] for name in shown)
        if total >= MIN_BITS:
            looks.append(NextSource(provider.name, provider.ask, provider.cost, round(total, 3), tuple(shown[:3])))
    return tuple(sorted(looks, key=lambda look: (-look.bits, look.source))[:MAX_LOOKS])


def _telling(network: Network) -> Shares:
    """Per cause, the sets that hold it, with their P, but for those that hardly have any."""
    return {name: [one for one in found if one[1] > _NO_SHARE] for name, found in network.sets_with.items()}


def _information(finding: Finding, network: Network, sets: Shares) -> float:
    """I(finding; causes) = H(Σ p·P) − Σ p·H(P), in bits."""
    touched = {chosen: share for name in (*network.misses(finding), OTHER) for chosen, share in sets[name]}
    # Sets whose members do not expect the finding all see it as often as nothing at all does: they count as one.
    shares = {network.expected(finding, NONE): max(0.0, 1 - sum(touched.values()))}
    for chosen, share in touched.items():
        expected = network.expected(finding, chosen)
        shares[expected] = shares.get(expected, 0.0) + share
    mixed = sum(share * expected for expected, share in shares.items())
    return max(0.0, _entropy(mixed) - sum(share * _entropy(expected) for expected, share in shares.items()))


def _entropy(p: float) -> float:
    if p <= 0 or p >= 1:
        return 0.0
    return -(p * math.log2(p) + (1 - p) * math.log2(1 - p))


# Kinds of subjects that a playbook may change: servers, and objects of a cluster whose API server was asked.
_SERVERS = frozenset(("replica", "server"))
_CLUSTER = "kubernetes"  # the collector
_OBJECTS = frozenset(("container", "deployment", "hpa", "namespace", "node", "pod", "replicaset", "statefulset"))


def first_playbook(cause: RankedCause, diagnosis: Diagnosis) -> str:
    """What may be run: for a cause that is named, and was seen at something that can be changed."""
    kinds = _SERVERS | (_OBJECTS if cluster_was_read(diagnosis) else frozenset())
    changed = any(kind_of(subject) in kinds for subject in cause.subjects)
    return cause.playbooks[0] if cause.named and cause.playbooks and changed else ""


def cluster_was_read(diagnosis: Diagnosis) -> bool:
    """Whether the API server of a cluster was asked: then the objects that were found can be changed there."""
    return any(
        row.collector == _CLUSTER and row.status in (CoverageStatus.READ, CoverageStatus.PARTLY)
        for row in diagnosis.coverage
    )


def playbooks_for(causes: Sequence[RankedCause], diagnosis: Diagnosis) -> tuple[str, ...]:
    """What may be run against all of them together, else against each."""
    runnable = [cause for cause in causes if first_playbook(cause, diagnosis)]
    if len(runnable) > 1:
        together = [name for name in runnable[0].playbooks if all(name in one.playbooks for one in runnable)]
        if together:
            return tuple(together)
    return tuple(dict.fromkeys(first_playbook(cause, diagnosis) for cause in runnable))
