"""The actions on Kubernetes against a real API server: applied, undone, and never over another client's edit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from latdoctor.cluster_api import JSON_PATCH, ApiRequest, Login
from latdoctor.errors import UsageError
from latdoctor.remediation.actions import ACTIONS
from latdoctor.remediation.actions.kubernetes.cluster_object import ClusterObject
from latdoctor.remediation.actions.kubernetes.connection import Connection, workload_of
from latdoctor.remediation.actions.kubernetes.find_workload import kubernetes_target
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Conflict,
    Deadline,
    Refused,
    Unreachable,
    WriteOptions,
    ensure,
)
from latdoctor.remediation.ownership import NotOurs, Write, not_ours
from latdoctor.remediation.run_result import Reason
from tests.lab.cluster.objects import Namespace, container
from tests.remediation.actions.kubernetes_cases import (
    NAME,
    PATIENCE,
    TYPICAL,
    WORLDS,
    Wire,
    World,
    autoscaler,
    idle,
    keda,
    replace,
    replicas,
    tapped,
)
from tests.remediation.actions.kubernetes_models import unfit


@pytest.fixture(params=WORLDS)
def any_world(request: pytest.FixtureRequest, namespace: Namespace, login: Login) -> Iterator[World]:
    world = WORLDS[request.param](namespace, login)
    yield world
    for cleanup in world.cleanups:
        cleanup()


@pytest.fixture(params=TYPICAL)
def world(request: pytest.FixtureRequest, namespace: Namespace, login: Login) -> World:
    return WORLDS[request.param](namespace, login)


@pytest.fixture
def web(namespace: Namespace, login: Login) -> World:
    return replicas(namespace, login)


def bring(world: World, change: Change, to: ChangeState, options: WriteOptions | None = None) -> Write | None:
    return ensure(change, to, world.resource(change), Deadline.after(PATIENCE), options or WriteOptions())


def test_every_action_on_kubernetes_has_a_fixture() -> None:
    evictions = {"kubernetes.pod.evict", "kubernetes.node.drain"}  # test_kubernetes_pods.py
    assert set(WORLDS) | evictions == {one.name for one in ACTIONS if "kubernetes" in one.kinds}


def test_change_is_applied_and_undone_and_never_made_over_an_edit_by_another_client(any_world: World) -> None:
    world = any_world
    change, before = world.planned(), world.found()
    with tapped(Wire()) as wire:
        assert world.refusals(change) == []
        write = bring(world, change, ChangeState.AFTER)
    assert unfit(wire.sent, world.path, before) == []  # for a current Kubernetes; this one is 1.20
    assert world.values(change) == change.after
    assert write is not None
    assert write.after.instance == before["metadata"]["uid"]
    assert bring(world, change, ChangeState.BEFORE)
    assert world.values(change) == change.before
    assert world.found()["spec"] == before["spec"]
    if world.ours:  # of two values, whatever others set is before or after
        world.edit(world.ours)
        theirs = world.found()["spec"]
        with pytest.raises(Conflict):
            bring(world, change, ChangeState.AFTER)
        assert world.found()["spec"] == theirs


def test_write_is_identified_as_the_next_read_shows_it(web: World) -> None:
    """Version, document and uid: else an untouched value would be taken for that of another client."""
    world = web
    change = world.planned()
    write = bring(world, change, ChangeState.AFTER)
    assert write is not None
    assert write.after == world.resource(change).read(Deadline.after(PATIENCE)).snapshot


def test_applying_twice_writes_once(world: World) -> None:
    change = world.planned()
    with tapped(Wire()) as wire:
        bring(world, change, ChangeState.AFTER)
        made = len(wire.writes)
        assert bring(world, change, ChangeState.AFTER) is None
    assert made == len(wire.writes) == 2  # the dry run and the write


def test_each_write_is_preceded_by_a_dry_run_of_the_same_patch(world: World) -> None:
    with tapped(Wire()) as wire:
        bring(world, world.planned(), ChangeState.AFTER)
    dry, real = wire.writes
    assert dry.query["dryRun"] == "All"
    assert "dryRun" not in real.query
    assert dry.body == real.body
    assert {one["path"] for one in real.body if one["op"] == "test"} >= {"/metadata/uid", "/metadata/resourceVersion"}


def test_another_edit_of_the_field_after_the_change_is_not_undone(world: World) -> None:
    change = world.planned()
    bring(world, change, ChangeState.AFTER)
    world.edit(world.ours)
    theirs = world.found()["spec"]
    with pytest.raises(Conflict):
        bring(world, change, ChangeState.BEFORE)
    assert world.found()["spec"] == theirs


def test_an_edit_of_another_field_at_the_moment_of_the_write_is_kept(world: World) -> None:
    change = world.planned()
    edits = iter([world.other])

    def edit(number: int, request: Any) -> None:
        if request.method == "patch" and "dryRun" not in request.query and (patch := next(edits, None)):
            world.edit(patch)

    with tapped(Wire(before=edit)):
        assert bring(world, change, ChangeState.AFTER)
    assert world.values(change) == change.after
    path, value = world.other[0]["path"], world.other[0]["value"]
    document: Any = world.found()
    for token in path.split("/")[1:]:
        document = document[int(token)] if isinstance(document, list) else document[token]
    assert document == value


def test_a_lost_response_is_resolved_by_reading(world: World) -> None:
    change = world.planned()
    lost = iter([True])

    def lose(number: int, request: Any) -> None:
        if request.method == "patch" and "dryRun" not in request.query and next(lost, False):
            raise Unreachable("the connection was closed")

    with tapped(Wire(after=lose)) as wire:
        write = bring(world, change, ChangeState.AFTER)
    assert write is not None
    assert len(wire.writes) == 2
    assert world.values(change) == change.after


def test_a_late_write_after_the_undo_changes_nothing(world: World) -> None:
    """The undo of a change that was never made fences: what is still on its way is then rejected."""
    change = world.planned()
    late: list[Any] = []

    def hold(number: int, request: Any) -> None:
        if request.method == "patch" and "dryRun" not in request.query:
            late.append(request)
            raise Unreachable("killed")

    resource = world.resource(change)
    with tapped(Wire(before=hold)), pytest.raises(Unreachable):
        resource.write(change.after, change.version, Deadline.after(PATIENCE))
    before = world.found()
    assert bring(world, change, ChangeState.BEFORE, WriteOptions("undo", fenced=True))
    with pytest.raises(Refused):
        Connection(workload_of(world.access.target)).send(late[0], Deadline.after(PATIENCE))
    after = world.found()
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")


def test_of_two_operators_one_wins(web: World) -> None:
    changes = [web.planned(add="1"), web.planned(add="2")]
    start, ended = threading.Barrier(2), list[object]()

    def operate(change: Change) -> None:
        start.wait(PATIENCE)
        try:
            ended.append(bring(web, change, ChangeState.AFTER))
        except Conflict as conflict:
            ended.append(conflict)

    threads = [threading.Thread(target=operate, args=(change,)) for change in changes]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert sorted(type(one).__name__ for one in ended) == ["Conflict", "Write"]
    assert [web.values(change) == change.after for change in changes].count(True) == 1


def test_an_object_that_was_created_anew_is_not_ours(web: World) -> None:
    change = web.planned()
    write = bring(web, change, ChangeState.AFTER)
    web.api.delete(web.path)
    web.namespace.wait("deployments", lambda all_: not all_)
    web.namespace.deployment(NAME, 2, container())
    now = web.resource(change).read(Deadline.after(PATIENCE)).snapshot
    assert not_ours(write, [], now) is NotOurs.RESTARTED


def test_a_field_that_the_server_drops_is_refused_and_nothing_is_changed(web: World) -> None:
    before = web.found()
    there = ClusterObject(Connection(workload_of(web.access.target)), web.path, lambda _: ("/spec/newInTheFuture",))
    state = there.read(Deadline.after(PATIENCE))
    with pytest.raises(Refused, match="would keep other values"):
        there.write({"/spec/newInTheFuture": 3}, state.version, Deadline.after(PATIENCE))
    assert web.found()["metadata"]["generation"] == before["metadata"]["generation"]


GITOPS = {
    "Argo CD": {"labels": {"argocd.argoproj.io/instance": "chat"}},
    "Argo CD manages": {"annotations": {"argocd.argoproj.io/tracking-id": "chat:apps/Deployment:prod/web"}},
    "Flux": {"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}},
    "Flux manages": {"labels": {"helm.toolkit.fluxcd.io/name": "chat"}},
}


@pytest.mark.parametrize("title", GITOPS)
def test_what_gitops_manages_is_refused_with_where_to_change_it(web: World, title: str) -> None:
    web.api.patch(web.path, {"metadata": GITOPS[title]})
    change = web.planned()
    assert change.caution.startswith("will be refused")
    (refusal,) = web.refusals(change)
    assert refusal.guard is Reason.OWNED
    assert title in refusal.reason
    assert "repository" in refusal.next_step


def test_what_the_controller_of_gitops_has_written_is_refused(web: World) -> None:
    label = replace("/metadata/labels", {"team": "chat"})
    manager = {"fieldManager": "argocd-controller"}
    request = ApiRequest("patch", web.path, label, JSON_PATCH, manager)
    web.api.request(request, PATIENCE)
    (refusal,) = web.refusals(web.planned())
    assert "Argo CD manages" in refusal.reason


@pytest.mark.parametrize("kind", ["InferenceService", "LeaderWorkerSet", "DynamoGraphDeployment", "Whatever"])
def test_what_an_operator_owns_is_refused_and_the_owner_named(web: World, kind: str) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": kind, "name": "chat", "uid": "1-2-3", "controller": True}
    web.api.patch(web.path, replace("/metadata/ownerReferences", [owner]), JSON_PATCH)
    (refusal,) = web.refusals(web.planned())
    assert f"{kind} chat owns" in refusal.reason
    assert kind.lower() in refusal.next_step


def test_a_release_of_helm_is_a_caution(web: World) -> None:
    web.api.patch(web.path, {"metadata": {"annotations": {"meta.helm.sh/release-name": "chat"}}})
    change = web.planned()
    assert "Helm release chat" in change.caution
    assert web.refusals(change) == []


def test_replicas_under_an_autoscaler_are_refused_and_its_playbooks_named(web: World) -> None:
    autoscaler(web.namespace)
    (refusal,) = web.refusals(web.planned())
    assert refusal.guard is Reason.OWNED
    assert "hpa-raise-maximum" in refusal.next_step


def test_an_autoscaler_that_keda_owns_is_refused(namespace: Namespace, login: Login) -> None:
    uid = keda(namespace, login).found()["metadata"]["uid"]
    path = autoscaler(namespace)
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": NAME, "uid": uid, "controller": True}
    namespace.api.patch(path, replace("/metadata/ownerReferences", [owner]), JSON_PATCH)
    world = World(namespace, login, "kubernetes.autoscaler.maximum.raise", {"add": "1"}, path, [], [])
    (refusal,) = world.refusals(world.planned())
    assert "maxReplicaCount" in refusal.next_step


def test_without_an_autoscaler_its_maximum_cannot_be_raised(namespace: Namespace, login: Login) -> None:
    idle(namespace)
    with pytest.raises(UsageError, match="no HorizontalPodAutoscaler"):
        World(namespace, login, "kubernetes.autoscaler.maximum.raise", {"add": "1"}, "", [], []).planned()


def test_the_minimum_is_not_raised_beyond_the_maximum(namespace: Namespace, login: Login) -> None:
    world = WORLDS["kubernetes.autoscaler.minimum.raise"](namespace, login)
    with pytest.raises(UsageError, match="the maximum is 5"):
        world.planned(add="5")


def test_replicas_beyond_the_quota_are_refused(web: World) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    web.api.create(web.namespace.path("resourcequotas"), quota)
    web.namespace.wait("resourcequotas", lambda all_: all_["few"].get("status", {}).get("hard"))
    (refusal,) = web.refusals(web.planned())
    assert (refusal.guard, "quota few leaves 1 pods" in refusal.reason) == (Reason.NO_CAPACITY, True)


def test_replicas_without_free_gpus_are_refused(namespace: Namespace, login: Login) -> None:
    idle(namespace, container(resources={"limits": {"nvidia.com/gpu": "2"}}))
    world = World(namespace, login, "kubernetes.replicas.add", {"add": "1"}, "", [], [])
    assert world.refusals(world.planned(add="1")) == []
    (refusal,) = world.refusals(world.planned(add="9"))
    assert refusal.guard is Reason.NO_CAPACITY
    assert "nvidia.com/gpu" in refusal.reason


@pytest.fixture
def both(web: World) -> Iterator[World]:
    path = f"/apis/apps/v1/namespaces/{web.namespace.name}/statefulsets"
    template = web.found()["spec"]["template"]
    spec = {"serviceName": NAME, "replicas": 0, "selector": {"matchLabels": {"app": NAME}}, "template": template}
    web.api.create(path, {"metadata": {"name": NAME}, "spec": spec})
    yield web
    web.api.delete(f"{path}/{NAME}")


def test_a_name_of_two_workloads_needs_its_kind(both: World, login: Login) -> None:
    name = both.namespace.name
    with pytest.raises(UsageError, match="is a Deployment and a StatefulSet"):
        kubernetes_target(f"{name}/{NAME}", login)
    assert workload_of(kubernetes_target(f"{name}/sts/{NAME}", login)).kind == "statefulsets"


def test_a_workload_that_is_not_there_is_named_with_its_cluster(web: World, login: Login) -> None:
    with pytest.raises(UsageError, match="has no deployments or statefulsets other"):
        kubernetes_target(f"{web.namespace.name}/other", login)


@pytest.mark.parametrize("name", ["web", "a/b/c/d", "prod/", "/web", "prod/../web", "prod/pod/web", "prod/we b"])
def test_another_form_of_name_is_refused(login: Login, name: str) -> None:
    with pytest.raises(UsageError):
        kubernetes_target(name, login)
