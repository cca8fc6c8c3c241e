"""Whether a proxy sends one of the servers behind it far more than the others, and that one is slower for it.

Servers of two groups (a canary, a fallback) share the requests unevenly on purpose. So one alone must stand out, of at
least three, and it must be slower: more work than one that is as fast as the others is no trouble.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.evidence.model import Evidence, Reading, Subject
from latdoctor.sanitize import clean

LOAD, SLOWNESS = "replica.load_ratio", "replica.latency_ratio"
SIGNALS = (LOAD, SLOWNESS)
_FEWEST, _FEWEST_SERVERS = 20, 3  # requests of a server that is compared; servers
_BUSIER, _SLOWER = 1.3, 1.4  # times the others' median


def upstream_evidence(stats: ReplicaStats, log: str) -> Evidence:
    """The load and the latency of the one server that stands out over the medians of the others."""
    readings = tuple(_readings(stats, log))
    subjects = tuple(Subject(one, parent=stats.subject) for one in dict.fromkeys(each.subject for each in readings))
    return Evidence(subjects=subjects, readings=readings)


def _readings(stats: ReplicaStats, log: str) -> Iterator[Reading]:
    requests = stats.requests
    times: dict[int, list[float]] = {}
    for row in stats.recent:
        if requests.upstream[row] >= 0 and stats.is_latency(row):
            times.setdefault(requests.upstream[row], []).append(requests.duration[row])
    known = {server: found for server, found in times.items() if len(found) >= _FEWEST}
    if len(known) < _FEWEST_SERVERS:
        return
    loads = {server: float(len(found)) for server, found in known.items()}
    means = {server: math.fsum(found) / len(found) for server, found in known.items()}
    busiest = max(loads, key=lambda server: loads[server])
    ratios = {server: _over_others(loads, server) for server in loads}
    slower = _over_others(means, busiest)
    if slower <= _SLOWER or [server for server, ratio in ratios.items() if ratio > _BUSIER] != [busiest]:
        return
    subject = f"replica/{clean(requests.upstreams[busiest], 64)}@{log}"
    note = f"{len(known[busiest])} of {sum(len(found) for found in known.values())} requests, of {len(known)} servers"
    for signal, value in ((LOAD, ratios[busiest]), (SLOWNESS, slower)):
        yield Reading(signal, subject, value, stats.origin, stats.window, (), note)


def _over_others(values: dict[int, float], server: int) -> float:
    others = median(value for other, value in values.items() if other != server)
    return values[server] / others if others > 0 else 0.0
