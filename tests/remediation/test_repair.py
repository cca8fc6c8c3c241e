"""A workload that was broken without a slow request: repaired, not repaired, and what only looks like it."""

from __future__ import annotations

import math

import pytest
from msgspec import json

from latdoctor.evidence.model import Evidence, Origin, Reading, Subject, Window
from latdoctor.remediation.history import History
from latdoctor.remediation.levels import levels_before
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.pending_proof import ProofStarted, Sources
from latdoctor.remediation.playbook_library import shipped
from latdoctor.remediation.proof import Proof, Schedule, signals_compared
from latdoctor.remediation.repair import broken_before
from latdoctor.remediation.run_result import WindowStatus
from latdoctor.remediation.verification import already_met, unverifiable

UNDO = shipped().find("framework.model.rollout-undo").verify
FINDINGS = UNDO.repair.findings if UNDO.repair else ()
STEP = 5.0  # seconds of a window
BEFORE, AFTER = 3, 24  # windows; so many after the change last for two minutes
ROUTER, DEPLOYMENT = "server/router", "deployment/prod/chat@lab"


def window(
    number: int = 0,
    *,
    fired: tuple[str, ...] = (),
    unavailable: float = 0.0,
    p99: float | None = 0.1,
    answered: float = 60.0,
    unknown: tuple[str, ...] = (),
) -> Observation:
    """What is seen of the service at 60 requests a second."""
    rows = [(ROUTER, "router.arrival_rate", 60.0), (ROUTER, "router.completion_rate", answered)]
    rows.append((DEPLOYMENT, "workload.replicas_unavailable", unavailable))
    if p99 is not None:
        rows.append((ROUTER, "router.latency.p99", p99 * (1.02 if number % 2 else 0.98)))
    seen = Evidence(
        subjects=(Subject(ROUTER), Subject(DEPLOYMENT)),
        readings=tuple(Reading(name, subject, value, Origin("page"), Window()) for subject, name, value in rows),
    )
    status = dict.fromkeys(FINDINGS, "clear") | dict.fromkeys(fired, "fired") | dict.fromkeys(unknown, "not-evaluated")
    return Observation(seen, status, {}, number * STEP, (number + 1) * STEP)


BROKEN = [window(number, fired=("image-not-pulled",), unavailable=1.0) for number in range(BEFORE)]
ROLLING = [window(number, unavailable=1.0) for number in range(BEFORE)]
OVER = [window(number, fired=("probe-restarts-container",)) for number in range(BEFORE)]
OUTAGE = [window(n, fired=("new-revision-fails",), unavailable=3.0, p99=None, answered=0.0) for n in range(BEFORE)]
WHOLE = [window(number) for number in range(AFTER)]


def proof(before: list[Observation]) -> Proof:
    levels = levels_before(before, History(), signals_compared(UNDO), STEP)
    now, _ = Schedule.of_run(UNDO, levels, STEP)
    return Proof(UNDO, levels, now, (), broken_before(UNDO.repair, before))


def status(before: list[Observation], after: list[Observation]) -> WindowStatus:
    return proof(before).look(after).status


def test_a_broken_workload_that_is_whole_again_is_verified_without_less_latency() -> None:
    assert unverifiable(UNDO, BROKEN) == ()
    assert already_met(UNDO, BROKEN) == ""
    assert status(BROKEN, WHOLE) == WindowStatus.SUCCESS


def test_it_has_to_stay_whole_for_as_long_as_a_proof_lasts() -> None:
    assert status(BROKEN, WHOLE[: AFTER // 2]) == WindowStatus.UNPROVEN


def test_a_rollout_in_progress_that_completes_is_not_verified() -> None:
    assert status(ROLLING, WHOLE) == WindowStatus.FAILURE


def test_a_fault_that_was_over_before_the_change_is_not_verified() -> None:
    assert status(OVER, WHOLE) == WindowStatus.FAILURE


def test_a_finding_that_came_and_went_is_no_fault() -> None:
    assert status([*BROKEN[:2], ROLLING[2]], WHOLE) == WindowStatus.FAILURE


LATE = AFTER - 4
WORSE = {
    "a Pod is missing once": [*WHOLE[:LATE], window(LATE, unavailable=1.0), *WHOLE[LATE + 1 :]],
    "it fires again once": [*WHOLE[:LATE], window(LATE, fired=("new-revision-fails",)), *WHOLE[LATE + 1 :]],
    "still broken": [window(number, fired=("image-not-pulled",), unavailable=1.0) for number in range(AFTER)],
    "slower": [window(number, p99=0.15) for number in range(AFTER)],
    "requests are refused": [window(number, answered=57.0) for number in range(AFTER)],
}


@pytest.mark.parametrize("after", WORSE.values(), ids=WORSE.keys())
def test_what_is_not_whole_or_got_worse_is_not_verified(after: list[Observation]) -> None:
    assert status(BROKEN, after) == WindowStatus.FAILURE


def test_what_is_not_known_is_not_verified() -> None:
    after = [*WHOLE[:-1], window(AFTER, unknown=("new-revision-fails",))]
    assert status(BROKEN, after) == WindowStatus.INCONCLUSIVE


def test_an_outage_that_ends_is_verified_although_no_latency_was_known() -> None:
    assert unverifiable(UNDO, OUTAGE) == ()
    assert status(OUTAGE, WHOLE) == WindowStatus.SUCCESS
    half = [window(number, answered=30.0) for number in range(AFTER)]
    assert status(OUTAGE, half) == WindowStatus.INCONCLUSIVE


def test_without_a_fault_unknown_latency_cannot_be_verified() -> None:
    assert "router.latency.p99" in "".join(unverifiable(UNDO, [window(p99=None)]))


def test_less_latency_alone_is_verified_as_before() -> None:
    slow = [window(number, p99=1.0) for number in range(BEFORE)]
    assert status(slow, WHOLE) == WindowStatus.SUCCESS


def test_a_pending_proof_remembers_what_was_broken() -> None:
    started = ProofStarted.of(proof(BROKEN), BROKEN[-1], STEP, Sources(), 0.0)
    again = json.decode(json.encode(started), type=ProofStarted).proof(UNDO)
    assert again.broken == ("image-not-pulled",)
    assert again.look(WHOLE).status == WindowStatus.SUCCESS
    assert math.isclose(again.schedule.hold, proof(BROKEN).schedule.hold)
