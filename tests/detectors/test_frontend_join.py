"""A worker is judged by what its frontend knows of the requests, too."""

from __future__ import annotations

from latdoctor.detectors.frontend_join import join_frontends
from latdoctor.evidence.model import Evidence, Origin, Reading


def given(*readings: tuple[str, str, float]) -> dict[tuple[str, str], object]:
    evidence = Evidence(readings=tuple(Reading(name, at, value, Origin("page")) for at, name, value in readings))
    return {(one.subject, one.signal): one.value for one in join_frontends(evidence).readings}


FRONT = (("model/m@f:1", "config.concurrency", 4.0), ("model/m@f:1", "arrival.rate", 20.0))
LONGER = (("model/m@f:1", "output.length.mean", 240.0), ("model/m@f:1", "output.length.before", 18.0))


def test_a_worker_gets_lengths_and_its_limit() -> None:
    found = given(*FRONT, *LONGER, ("model/m@w:1", "requests.running", 4.0), ("model/m@w:1", "queue.depth", 26.0))
    assert found == {
        ("model/m@w:1", "requests.limit"): 4.0,
        ("model/m@w:1", "output.length.mean"): 240.0,
        ("model/m@w:1", "output.length.before"): 18.0,
    }


def test_what_a_worker_reports_itself_stays() -> None:
    found = given(*FRONT, ("model/m@w:1", "requests.running", 4.0), ("model/m@w:1", "requests.limit", 8.0))
    assert found == {}


def test_of_two_frontends_neither_is_joined() -> None:
    second = ("model/m@g:1", "config.concurrency", 4.0)
    assert given(*FRONT, second, ("model/m@w:1", "requests.running", 4.0)) == {}


def test_another_model_and_a_server_with_arrivals_of_its_own_are_not_joined() -> None:
    own = (("model/m@v:1", "requests.running", 4.0), ("model/m@v:1", "arrival.rate", 3.0))
    assert given(*FRONT, *own, ("model/n@w:1", "requests.running", 4.0)) == {}
