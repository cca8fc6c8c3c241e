"""How the requests in flight are spread over replicas: what each holds against the others.

Replicas are the engines of one server (subjects `replica/…`, or those that a label such as `engine` or `dp_rank` keeps
apart), the same model on several servers' pages, or the servers at the addresses that a router's page names. Engines
that log no arrivals still show what they hold. Where no sibling reports a queue, as on the page of a router, what each
runs is compared; one that is down is no sibling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading

RUNNING, QUEUE = "requests.running", "queue.depth"
UP = "replica.up"
RATIO, OTHERS = "replica.held_ratio", "replica.others_queue"
DERIVED = (RATIO, OTHERS)
_REPLICA = "replica"
_RANK = re.compile(r"[:,](?:engine|dp_rank)=[^:,@]*")


def held_requests(evidence: Evidence) -> Evidence:
    """Derive `replica.held_ratio` and `replica.others_queue` for every replica with siblings."""
    running = {one.subject: (one, value) for one, value in latest_numbers(evidence, RUNNING)}
    queues = latest_values(evidence, QUEUE)
    groups: dict[str, list[str]] = {}
    down = {subject for subject, up in latest_values(evidence, UP).items() if up < 1}
    routed = _routed(evidence)
    for subject in running.keys() - down:
        groups.setdefault(routed.get(subject) or _service(subject), []).append(subject)
    found: list[Reading] = []
    for service, members in groups.items():
        queueing = [subject for subject in members if subject in queues]
        compared = queueing or (members if service.startswith(_REPLICA) else [])
        for subject in compared if service else ():
            found += _of_one(running[subject][0], subject, compared, running, queues)
    return Evidence(readings=tuple(found))


def _routed(evidence: Evidence) -> dict[str, str]:
    """The subject of a server with a page of its own → the router's page that names its address."""
    found = {}
    for reading in evidence.readings_by_signal.get(UP, ()):
        address, _, router = reading.subject.removeprefix(f"{_REPLICA}/").partition("@")
        found[f"server/{address.partition('://')[2] or address}"] = f"routed@{router}"
    return found


def _service(subject: str) -> str:
    """What the siblings of `subject` have in common; empty for what has none."""
    name, _, host = subject.partition("@")
    if name.startswith("replica/"):
        return f"replica@{host}"
    return _RANK.sub("", name) if name.startswith("model/") else ""


def _of_one(
    source: Reading,
    subject: str,
    members: list[str],
    running: dict[str, tuple[Reading, float]],
    queues: dict[str, float],
) -> Iterator[Reading]:
    others = [member for member in members if member != subject]
    if not others:
        return
    note = f"against {len(others)} other{'s' if len(others) > 1 else ''}"
    usual = median(running[member][1] + queues.get(member, 0.0) for member in others)
    held = running[subject][1] + queues.get(subject, 0.0)
    # One request more than nothing is no multiple.
    yield _reading(source, RATIO, (held + 1) / (usual + 1), note)
    if subject in queues:
        yield _reading(source, OTHERS, median(queues[member] for member in others), note)


def _reading(source: Reading, signal: str, value: float, note: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, note), source.window, (), note)
