"""Whole runs on a real API server: verified, undone, refused, raced, and killed around each of their requests."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from latdoctor.cluster_api import JSON_PATCH, Login
from latdoctor.journal.entry import Moment
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.change import Undo
from latdoctor.remediation.executor import execute
from latdoctor.remediation.planner import Plan, PlanRequest, build_plan
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.rollback import recover_run, roll_back_run
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.target import Target
from tests.lab.cluster.objects import HEALTH, Namespace, condition, container
from tests.remediation.actions.kubernetes_cases import (
    NAME,
    PATIENCE,
    Wire,
    World,
    argument,
    autoscaler,
    idle,
    maximum,
    node,
    noticed,
    quota,
    replace,
    replicas,
    rollout_undo,
    tapped,
)
from tests.remediation.sample_playbooks import SCHEDULER, library
from tests.remediation.simulated_service import Remembered, Service

POLL = 0.05  # real seconds for a pause of the simulated clock


class Killed(BaseException):
    """The process has ended here."""


@dataclass
class Room:
    """Runs of one action, whose effect on the service is simulated. `helps`: whether P99 falls with the change."""

    world: World
    folder: Path
    helps: bool = True
    patience: str = "20s"  # simulated, for a rollout: a second is POLL real seconds
    service: Service = field(default_factory=Service)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Remembered.opened(self.folder / "journal", clock=self._moment)
        self.service.p99 = lambda _: 0.3 if self.helps and self.made() else 3.0
        self.before = self.world.found()["spec"]

    def _moment(self) -> Moment:
        at = datetime.datetime.fromtimestamp(self.service.wall(), datetime.UTC)
        return Moment(at.isoformat(timespec="microseconds"), self.service.now, self.service.boot)

    def made(self) -> bool:
        """Whether the run has made its change: what the service follows, without a request for each observation."""
        return any(one.kind == "change.made" for one in self.journal.entries())

    def changed(self) -> bool:
        return bool(self.world.found()["spec"] != self.before)

    @property
    def library(self) -> Library:
        given = ", ".join(f'{name}: "{value}"' for name, value in self.world.arguments.items())
        step = f"  - {{id: step, action: {self.world.action}, with: {{{given}}}, undo: {self.world.undo}}}"
        text = SCHEDULER.replace("targets: [reference]", "targets: [kubernetes]").replace("count: 2", "count: 99")
        text = text.replace("at_most: 20s", f"at_most: {self.patience}")
        lines = [step if "action: test.set" in line else line for line in text.splitlines()]
        return library(self.folder, "\n".join(lines))

    @property
    def context(self) -> RunContext:
        return RunContext(
            journal=self.journal,
            state=self.folder,
            access=self.world.access,
            observe=self.service.observe,
            save_bundle=lambda bundle, path: None,
            now=self.service.wall,
            clock=self.service.clock,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        self.service.sleep(seconds)
        threading.Event().wait(POLL)

    def plan(self) -> Plan:
        books = self.library
        request = PlanRequest(books.find("test.scheduler"), {})
        return build_plan(request, books, self.world.access, self.service.wall(), self.journal.clock())

    def run(self, plan: Plan | None = None) -> Result:
        return execute(plan or self.plan(), self.library, self.context)

    def recovered(self) -> list[Result]:
        def enter(target: Target) -> RunContext:
            return self.context

        open_runs = [run for run in run_history.runs(self.journal.entries()) if run.open]
        return [recover_run(run, enter) for run in open_runs]


def test_a_run_that_helps_is_verified_and_can_be_rolled_back(
    namespace: Namespace, login: Login, tmp_path: Path
) -> None:
    namespace.deployment(NAME, 1, container(readinessProbe=HEALTH))
    namespace.wait("deployments", lambda all_: condition(all_[NAME], "Available") == "True")
    path = namespace.path("deployments", NAME)
    world = World(namespace, login, "kubernetes.replicas.add", {"add": "2"}, path, [], [])
    room = Room(world, tmp_path, patience="20min")
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.VERIFIED, Reason.VERIFIED)
    status = world.found()["status"]
    assert (status["availableReplicas"], status["updatedReplicas"]) == (3, 3)
    back = roll_back_run(result.run, lambda _: room.context, lambda: run_history.runs(room.journal.entries()))
    assert back.outcome is Outcome.ROLLED_BACK
    assert world.found()["spec"] == room.before


def test_the_proof_begins_when_the_rollout_is_complete(namespace: Namespace, login: Login, tmp_path: Path) -> None:
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    namespace.deployment(NAME, 0, container(readinessProbe=never))
    namespace.wait("deployments", lambda all_: noticed(all_[NAME], "1"))
    path = namespace.path("deployments", NAME)
    room = Room(World(namespace, login, "kubernetes.replicas.add", {"add": "1"}, path, [], []), tmp_path)
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.ROLLED_BACK, Reason.NOT_COMPLETE)
    assert "0 of 1 ready" in result.reason
    assert not [one for one in room.journal.entries() if one.kind == "verify.window"]
    assert not room.changed()


Make = Callable[[Namespace, Login], World]
MAKES: dict[str, Make] = {"quota": quota, "rollout-undo": rollout_undo}
makes = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@makes
def test_a_run_that_does_not_help_is_rolled_back(
    namespace: Namespace, login: Login, tmp_path: Path, make: Make
) -> None:
    room = Room(make(namespace, login), tmp_path, helps=False, patience="10min")
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.ROLLED_BACK, Reason.NO_IMPROVEMENT)
    assert not room.changed()


@makes
def test_an_edit_by_another_client_after_the_change_stays(
    namespace: Namespace, login: Login, tmp_path: Path, make: Make
) -> None:
    room = Room(make(namespace, login), tmp_path, helps=False, patience="10min")
    edits = iter([room.world.ours])

    def edit(service: Service) -> None:
        if room.made() and (patch := next(edits, None)):
            room.world.edit(patch)

    room.service.on_observe = edit
    result = room.run()
    assert result.outcome is Outcome.INCOMPLETE
    assert "modified by another client" in result.reason
    assert "kubectl" in result.overwrite[0]


def test_a_plan_of_an_object_that_was_changed_since_is_refused(
    namespace: Namespace, login: Login, tmp_path: Path
) -> None:
    room = Room(replicas(namespace, login), tmp_path)
    plan = room.plan()
    room.world.edit(room.world.other)
    result = room.run(plan)
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.TARGET_MODIFIED)


def test_what_an_action_refuses_is_not_begun(namespace: Namespace, login: Login, tmp_path: Path) -> None:
    room = Room(replicas(namespace, login), tmp_path)
    autoscaler(namespace)
    result = room.run()
    assert (result.outcome, result.code) == (Outcome.REFUSED, Reason.OWNED)
    assert "HorizontalPodAutoscaler" in result.reason
    assert [one.kind for one in room.journal.entries()] == ["run.refused"]


def test_of_two_runs_in_two_state_folders_one_makes_its_change(
    namespace: Namespace, login: Login, tmp_path: Path
) -> None:
    """Locks are per folder: only the tests in the patch keep two operators apart."""
    world = quota(namespace, login)
    rooms = [Room(world, tmp_path / name) for name in ("one", "two")]
    plans = [room.plan() for room in rooms]
    meet, waited = threading.Barrier(2), set[int]()
    ended: list[Result] = []

    def wait(number: int, request: Any) -> None:
        """Both are about to write what they have read."""
        if request.method == "patch" and "dryRun" not in request.query and threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            meet.wait(PATIENCE)

    def operate(room: Room, plan: Plan) -> None:
        ended.append(room.run(plan))

    with tapped(Wire(before=wait)):
        threads = [threading.Thread(target=operate, args=pair) for pair in zip(rooms, plans, strict=True)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(3 * PATIENCE)
    outcomes = sorted(one.outcome for one in ended)
    assert outcomes == [Outcome.REFUSED, Outcome.VERIFIED], [one.reason for one in ended]


def scaling(namespace: Namespace, login: Login) -> World:
    """Replicas that no node fits, and that nothing waits for."""
    path = idle(namespace, nodeSelector={"test/none": "true"})
    namespace.api.patch(path, replace("/spec/paused", True), JSON_PATCH)
    return World(namespace, login, "kubernetes.replicas.add", {"add": "2"}, path, [], [])


# Each with whether it helps, and for how long a rollout is awaited: the autoscaler of the test never asks for more.
SWEEPS: dict[str, tuple[Make, bool, str]] = {
    "quota verified": (quota, True, "10min"),
    "quota rolled back": (quota, False, "10min"),
    "rollout undo verified": (rollout_undo, True, "10min"),
    "rollout undo rolled back": (rollout_undo, False, "10min"),
    "scaling verified": (scaling, True, "10min"),
    "scaling rolled back": (scaling, False, "10min"),
    "argument verified": (argument, True, "10min"),
    "autoscaler rolled back": (maximum, False, "2s"),
}


@pytest.mark.parametrize(("make", "helps", "patience"), SWEEPS.values(), ids=SWEEPS)
def test_a_run_killed_around_any_request_is_before_or_verified_after_its_recovery(
    namespace: Namespace, login: Login, tmp_path: Path, make: Make, helps: bool, patience: str
) -> None:
    world = make(namespace, login)
    points = _requests_of(Room(world, tmp_path / "whole", helps, patience), world)
    before = world.found()["spec"]
    for number, moment in points:
        _restore(world, before)
        room = Room(world, tmp_path / f"{number}-{moment}", helps, patience)
        kill = _killing(number)
        with tapped(Wire(**{moment: kill})), suppress(Killed):  # a run that was answered faster needs fewer requests
            room.run()
        room.recovered()
        run = run_history.runs(room.journal.entries())[-1]
        assert not run.open, (number, moment, run.reason)
        assert room.changed() is (run.outcome is Outcome.VERIFIED), (number, moment, run.outcome, run.reason)
        assert room.recovered() == []


def test_an_eviction_killed_around_any_request_ends_no_other_pod(
    namespace: Namespace, login: Login, tmp_path: Path
) -> None:
    bound = node(namespace)
    namespace.deployment(NAME, 2, container(), nodeName=bound)  # without a kubelet they stay as they are
    namespace.api.patch(namespace.path("deployments", NAME), replace("/spec/paused", True), JSON_PATCH)
    namespace.wait("pods", lambda all_: len(all_) == 2)
    with tapped(Wire()) as wire:
        assert Room(_one_pod(namespace, login), tmp_path / "whole").run().outcome is Outcome.VERIFIED
    evicted = next(number for number, one in enumerate(wire.sent, 1) if one.path.endswith("/eviction"))
    for number in range(evicted - 1, len(wire.sent) + 1):
        for moment in ("before", "after"):
            namespace.wait("pods", lambda all_: len(_staying(all_)) == 2)
            world, before = _one_pod(namespace, login), _staying(_pods(namespace))
            room = Room(world, tmp_path / f"{number}-{moment}")
            with tapped(Wire(**{moment: _killing(number)})), suppress(Killed):
                room.run()
            room.recovered()
            run = run_history.runs(room.journal.entries())[-1]
            gone = before - _staying(_pods(namespace))
            assert not run.open, (number, moment, run.reason)
            assert gone <= {world.arguments["pod"]}, (number, moment)
            assert gone or run.outcome is not Outcome.VERIFIED, (number, moment)
    namespace.api.delete(f"/api/v1/nodes/{bound}")


def _one_pod(namespace: Namespace, login: Login) -> World:
    name = min(_staying(_pods(namespace)))
    path = namespace.path("pods", name)
    return World(namespace, login, "kubernetes.pod.evict", {"pod": name}, path, [], [], Undo.NONE_NEEDED)


def _pods(namespace: Namespace) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in namespace.api.get(namespace.path("pods"))["items"]}


def _staying(pods: dict[str, Any]) -> set[str]:
    return {name for name, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}


def _killing(at: int) -> Callable[[int, Any], None]:
    def kill(number: int, request: Any) -> None:
        if number == at:
            raise Killed

    return kill


def _requests_of(room: Room, world: World) -> list[tuple[int, str]]:
    """The moments before and after each request of an undisturbed run, from the first that is about the change."""
    before = world.found()["spec"]
    with tapped(Wire()) as wire:
        room.run()
    first = next(number for number, one in enumerate(wire.sent, 1) if one.method == "patch") - 1
    _restore(world, before)
    return [(number, moment) for number in range(first, len(wire.sent) + 1) for moment in ("before", "after")]


def _restore(world: World, spec: object) -> None:
    if world.found()["spec"] != spec:
        world.edit(replace("/spec", spec))
        if "deployments" in world.path:
            world.namespace.wait("deployments", lambda all_: _seen(all_[NAME]))


def _seen(deployment: dict[str, Any]) -> bool:
    return bool(deployment["status"].get("observedGeneration") == deployment["metadata"]["generation"])
