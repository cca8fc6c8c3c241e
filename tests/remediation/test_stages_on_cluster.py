"""A stage that starts or replaces Pods is judged at the router: the new Pods were not measured before."""

from __future__ import annotations

from latdoctor.evidence.model import Evidence, Origin, Reading, Subject, Window
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.playbook_library import shipped
from latdoctor.remediation.run_result import WindowStatus
from latdoctor.remediation.verification import cause_absent, evaluate_window, recovering, stage_verification

ROUTER = "server/router"
SCALE, SHED = (shipped().find(name) for name in ("app.scale.hpa-raise-maximum", "app.governance.server-argument"))
OVER_SLO = "p99-over-slo"


def window(
    *replicas: str, p99: float | None, answered: float = 50.0, over_slo: bool = True, seen_arriving: float = 25.0
) -> Observation:
    rows = [(ROUTER, "router.arrival_rate", 60.0), (ROUTER, "router.completion_rate", answered)]
    rows += [] if p99 is None else [(ROUTER, "router.latency.p99", p99)]
    rows += [(f"replica/{name}", "completion.rate", answered / len(replicas)) for name in replicas]
    rows += [(f"replica/{name}", "arrival.rate", seen_arriving) for name in replicas]
    rows += [] if p99 is None else [(f"replica/{name}", "latency.p99", p99) for name in replicas]
    seen = Evidence(
        subjects=(Subject(ROUTER), *(Subject(f"replica/{name}", ROUTER) for name in replicas)),
        readings=tuple(Reading(signal, subject, value, Origin("page"), Window()) for subject, signal, value in rows),
    )
    return Observation(seen, {OVER_SLO: "fired" if over_slo else "clear"}, {}, 0.0, 5.0)


BEFORE = window("a", "b", p99=4.0)


def status(before: Observation, after: Observation) -> WindowStatus:
    return evaluate_window(stage_verification(SCALE.verify, [before]), after, [before]).status


def test_new_pods_do_not_keep_a_stage_from_being_judged() -> None:
    assert status(BEFORE, window("a", "b", "c", "d", p99=3.0)) == WindowStatus.SUCCESS
    assert status(BEFORE, window("e", "f", p99=4.2)) == WindowStatus.SUCCESS


def test_a_stage_that_slows_the_service_down_is_no_success() -> None:
    assert status(BEFORE, window("a", "b", "c", "d", p99=6.0)) != WindowStatus.SUCCESS


def test_nothing_gets_worse_where_nothing_was_answered() -> None:
    assert status(window("a", p99=None, answered=0.0), window("a", "b", p99=5.0)) == WindowStatus.SUCCESS


def test_an_overloaded_service_whose_clients_give_up_is_not_recovering() -> None:
    """A router tells what a replica gets by its answers and those in flight, which fall when clients give up."""
    assert recovering([window("a", p99=4.0, answered=37.0, seen_arriving=23.0)]) == ""
    assert "router.completion_rate" in recovering([window("a", p99=4.0, answered=80.0)])


def test_shedding_is_skipped_once_scaling_has_helped() -> None:
    assert not cause_absent(SHED.verify, [BEFORE])
    assert cause_absent(SHED.verify, [window("a", "b", "c", p99=0.2, over_slo=False)])
