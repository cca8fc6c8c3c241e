"""CPU use of other processes; servers whose pages are read do not count."""

from __future__ import annotations

import pytest

from latdoctor.detectors.noisy_neighbor import NEIGHBOURS, neighbour_cpu
from latdoctor.evidence.model import Evidence, Origin, Reading, Subject, Window

OTHERS = {
    ("process/7", "process.others_cpu_ratio"): 0.6,
    ("process/7", "process.cpu_ratio"): 0.8,
    ("node/local", "host.cpus"): 2.0,
}
FIRST, SECOND, FAR = "replica/0@127.0.0.1:8000", "replica/1@[::1]:8001", "replica/1@10.0.0.9:8001"
USED = "server.cpus_used"


def evidence(*subjects: str, **more: float) -> Evidence:
    """The machine with `subjects`; of those in `more` (`first`, `second`, `far`) it is known what they used."""
    names = {"first": FIRST, "second": SECOND, "far": FAR}
    rows = {**OTHERS, **{(names[name], USED): value for name, value in more.items()}}
    return Evidence(
        subjects=tuple(Subject(one) for one in dict.fromkeys([*subjects, *(subject for subject, _ in rows)])),
        readings=tuple(
            Reading(signal, subject, value, Origin("page"), Window(0.0, 10.0))
            for (subject, signal), value in rows.items()
        ),
    )


@pytest.mark.parametrize(
    ("seen", "ratio"),
    [
        (evidence(), 0.6),
        (evidence(first=0.8), 0.6),  # its own page, and its own time
        (evidence(first=0.8, second=0.9), 0.15),
        (evidence(first=0.8, second=1.9), 0.0),
        (evidence(first=0.8, far=0.9), 0.6),  # a server elsewhere takes nothing here
        (evidence(FIRST), 0.6),  # one server alone: it is the process
        (evidence("replica/0@localhost:9", "replica/1@localhost:9", first=0.8), 0.6),  # a router tells of several
    ],
)
def test_what_strangers_take(seen: Evidence, ratio: float) -> None:
    (found,) = neighbour_cpu(seen).readings
    assert (found.signal, found.subject, found.value) == (NEIGHBOURS, "process/7", pytest.approx(ratio))


def test_a_replica_without_cpu_use_makes_it_unknown() -> None:
    found = neighbour_cpu(evidence(SECOND, first=0.8))
    assert not found.readings
    assert [(gap.signals, gap.subject) for gap in found.gaps] == [((NEIGHBOURS,), "process/7")]
    assert SECOND in found.gaps[0].reason


@pytest.mark.parametrize("missing", list(OTHERS))
def test_nothing_is_made_of_half(missing: tuple[str, str]) -> None:
    seen = evidence(first=0.8)
    left = tuple(one for one in seen.readings if (one.subject, one.signal) != missing)
    assert neighbour_cpu(Evidence(subjects=seen.subjects, readings=left)) == Evidence()


def test_once_is_enough() -> None:
    seen = evidence(first=0.8, second=0.9)
    assert neighbour_cpu(Evidence.merge([seen, neighbour_cpu(seen)])) == Evidence()
