"""CPU time that unrelated processes take from a watched process.

Replicas on one machine compete for its processors; servers whose pages are collected are not counted as neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.detectors.replica_outliers import OF_SERVER, REPLICA
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading
from latdoctor.gap_code import GapCode
from latdoctor.http.safe_address import is_loopback

TAKEN, OWN, BY_SERVERS = "process.others_cpu_ratio", "process.cpu_ratio", "server.cpus_used"
NEIGHBOURS = "process.neighbour_cpu_ratio"


def neighbour_cpu(evidence: Evidence) -> Evidence:
    """Derive `process.neighbour_cpu_ratio`: CPU used by others, minus that of the known servers on this machine.

    A gap if one of several local replicas does not report its CPU use.
    """
    if NEIGHBOURS in evidence.readings_by_signal:
        return Evidence()
    found = list(_found(evidence))
    return Evidence(
        readings=tuple(one for one in found if isinstance(one, Reading)),
        gaps=tuple(one for one in found if isinstance(one, Gap)),
    )


def _found(evidence: Evidence) -> Iterator[Reading | Gap]:
    processors = next((value for _, value in latest_numbers(evidence, "host.cpus")), 0.0)
    own = latest_values(evidence, OWN)
    used = {one.subject: value for one, value in latest_numbers(evidence, BY_SERVERS) if _is_here(one.subject)}
    replicas = _replicas([one.id for one in evidence.subjects])
    silent = sorted(replicas - used.keys()) if len(replicas) > 1 else []
    for taken, ratio in latest_numbers(evidence, TAKEN):
        origin = Origin(taken.origin.artifact, f"{TAKEN} less {BY_SERVERS} of the servers here")
        if taken.subject not in own or processors <= 0:
            continue
        if silent:
            reason = f"{silent[0]} does not report its CPU use"
            yield Gap("derived", reason, (NEIGHBOURS,), taken.subject, origin=origin, code=GapCode.ABSENT)
            continue
        used_by_servers = max(0.0, sum(used.values()) - own[taken.subject]) / processors
        note = f"{len(used)} known servers not counted" if used_by_servers else ""
        yield Reading(NEIGHBOURS, taken.subject, max(0.0, ratio - used_by_servers), origin, taken.window, note=note)


def _replicas(subjects: Iterable[str]) -> frozenset[str]:
    """Local replicas with a page of their own; a page that lists several replicas is a router's."""
    pages: dict[str, list[str]] = {}
    for subject in subjects:
        if subject.startswith(REPLICA) and _is_here(subject):
            pages.setdefault(subject.rpartition(OF_SERVER)[2], []).append(subject)
    return frozenset(names[0] for names in pages.values() if len(names) == 1)


def _is_here(subject: str) -> bool:
    """Whether the subject is from a page of this machine: `replica/0@127.0.0.1:8000`."""
    return is_loopback(subject.rpartition(OF_SERVER)[2].rpartition(":")[0])
