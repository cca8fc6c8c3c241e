"""Pods that are evicted through their PodDisruptionBudgets: one Pod, or those of a node that is cordoned.

An eviction names the uid of the Pod, so its successor of the same name is never meant. It leaves nothing to undo: the
controller of the Pod has created another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from latdoctor.cluster_api import ApiRequest
from latdoctor.errors import UsageError
from latdoctor.remediation.actions.kubernetes.cluster_object import kubectl_command
from latdoctor.remediation.actions.kubernetes.connection import (
    BudgetExhausted,
    Connection,
    Object,
    ObjectGone,
    workload_of,
)
from latdoctor.remediation.actions.kubernetes.field_action import LOCATED_WITHIN, Arguments, FieldsAction, path_in
from latdoctor.remediation.actions.kubernetes.fields import raw_at
from latdoctor.remediation.actions.kubernetes.rights import Right, missing_rights
from latdoctor.remediation.actions.kubernetes.workload import incomplete, read_workload
from latdoctor.remediation.change import (
    Change,
    Contended,
    Deadline,
    Receipt,
    Refused,
    State,
    Undo,
    Value,
    Values,
)
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.run_result import Reason
from latdoctor.remediation.target import Access, Target, TargetKind, canonical_url

UNSCHEDULABLE = "/spec/unschedulable"
_NODES = "/api/v1/nodes"
_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")
_EVICT = (Right("create", "", "pods", "eviction"),)


def evict(connection: Connection, namespace: str, name: str, uid: str, deadline: Deadline) -> None:
    """Return once the eviction is accepted, or the Pod is gone. Raises Contended while its budget allows none."""
    known = connection.versions("policy", deadline)
    body = {
        "apiVersion": f"policy/{'v1' if 'v1' in known else 'v1beta1'}",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    try:
        connection.send(ApiRequest("post", path, body), deadline)
    except ObjectGone:
        return
    except BudgetExhausted as budget:
        raise Contended(budget.what, where=path) from budget


def _evictable(pod: Object) -> bool:
    """Whether the Pod runs, and is not one of a node itself (DaemonSet, static Pod), which would start there again."""
    owners = {one.get("kind") for one in raw_at(pod, "/metadata/ownerReferences") or ()}
    static = _MIRROR in (raw_at(pod, "/metadata/annotations") or {})
    return raw_at(pod, "/status/phase") not in _ENDED and not static and "DaemonSet" not in owners


def _name(pod: Object) -> str:
    return f"{raw_at(pod, '/metadata/namespace')}/{raw_at(pod, '/metadata/name')}"


def _uid(pod: Object) -> str | None:
    """None for a Pod that is being deleted."""
    return None if raw_at(pod, "/metadata/deletionTimestamp") else str(raw_at(pod, "/metadata/uid"))


@dataclass(frozen=True, slots=True)
class Pods:
    """The uids of Pods by namespace and name; None for one that is gone or is being deleted.

    `path`: that of a Pod, or of a node, whose Pods these are. `uid`: of the one Pod; its successor is not meant.
    """

    connection: Connection
    path: str
    uid: str = ""
    _read: dict[str, str | None] = field(default_factory=dict)  # what was read last: only these are evicted

    @property
    def where(self) -> str:
        return f"{canonical_url(self.connection.workload.cluster)}{self.path}"

    @property
    def _is_node(self) -> bool:
        return self.path.startswith(f"{_NODES}/")

    def read(self, deadline: Deadline) -> State:
        self._read.clear()
        self._read.update({_name(one): _uid(one) for one in self._pods(deadline)})
        uids: dict[str, Value] = dict(self._read)
        # Each Pod is evicted by itself, so a run that was interrupted leaves some of them.
        return State(uids, "", parts={name: (uid,) for name, uid in uids.items()})

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Raises Refused for Pods that would be created, and once a person has uncordoned the node."""
        for name, value in values.items():
            if value is not None:
                raise Refused("an evicted Pod does not come back; its controller has created another", where=name)
            if self._is_node and not raw_at(self.connection.get(self.path, deadline), UNSCHEDULABLE):
                raise Refused("the node was uncordoned meanwhile, so the rest of its Pods stay", where=self.where)
            if uid := self._read.get(name):
                namespace, _, pod = name.partition("/")
                evict(self.connection, namespace, pod, uid, deadline)
        return Receipt()

    def manual_command(self, values: Values) -> str:
        kubectl = kubectl_command(self.connection, namespaced=False)
        node, pod = self.path.rpartition("/")[2], next(iter(values), "")
        return (
            f"{kubectl} get pods -A --field-selector spec.nodeName={node}"
            if self._is_node
            else (f"{kubectl} -n {pod.partition('/')[0]} get pods  # the controller has created another Pod")
        )

    def incomplete(self, deadline: Deadline) -> str:
        return incomplete(read_workload(self.connection, deadline))

    def _pods(self, deadline: Deadline) -> list[Object]:
        if not self._is_node:
            pod = self.connection.find(self.path, deadline)
            return [pod] if pod is not None and raw_at(pod, "/metadata/uid") == self.uid else []
        name = self.path.rpartition("/")[2]
        found = self.connection.items("/api/v1/pods", deadline, fieldSelector=f"spec.nodeName={name}")
        return [one for one in found if _evictable(one)]


@dataclass(frozen=True, slots=True)
class EvictAction:
    """Evicts one Pod of the workload, or all of a cordoned node. `argument` names it: pod or node."""

    name: str
    argument: str
    rights: tuple[Right, ...]
    kinds: frozenset[TargetKind] = frozenset({TargetKind.KUBERNETES})
    undos: frozenset[Undo] = frozenset({Undo.NONE_NEEDED})

    def check_arguments(self, arguments: Arguments) -> Iterator[str]:
        if set(arguments) != {self.argument}:
            yield f"takes one argument, `{self.argument}: NAME`"

    def resource_id(self, target: Target, arguments: Arguments) -> str:
        connection = Connection(workload_of(target))
        path = self._path(connection, arguments.get(self.argument, ""))
        found = connection.find(path, Deadline.after(LOCATED_WITHIN))
        if found is None:
            raise UsageError(f"there is no {self.argument} {arguments.get(self.argument)!r}", where=target.name)
        chosen = "pods" if self.argument == "node" else f"pod {raw_at(found, '/metadata/uid')}"
        return f"{chosen} of {canonical_url(connection.workload.cluster)}{path}"

    def resource(self, access: Access, resource_id: str) -> Pods:
        connection = Connection(workload_of(access.target))
        uid = resource_id.partition(" of ")[0].partition(" ")[2]
        return Pods(connection, path_in(resource_id, connection), uid)

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        return dict.fromkeys(name for name, uid in state.values.items() if uid is not None)

    def refusals(self, access: Access, change: Change, deadline: Deadline) -> Iterator[Refusal]:
        connection = Connection(workload_of(access.target))
        yield from missing_rights(connection, self.rights, deadline)
        for one in change.fields:
            namespace, _, name = one.name.partition("/")
            pod = connection.find(f"/api/v1/namespaces/{namespace}/pods/{name}", deadline)
            if pod is not None and not any(o.get("controller") for o in raw_at(pod, "/metadata/ownerReferences") or ()):
                reason = f"no controller would replace the Pod {one.name}"
                yield Refusal(Reason.OWNED, reason, "delete it by hand if it is not needed")

    def _path(self, connection: Connection, name: str) -> str:
        if not name or "/" in name or ".." in name:
            raise UsageError(f"{name!r} is not the name of a {self.argument}")
        namespace = connection.workload.namespace
        return f"{_NODES}/{name}" if self.argument == "node" else f"/api/v1/namespaces/{namespace}/pods/{name}"


def _locate_node(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    """Raises UsageError where the cluster has no such node."""
    name = arguments.get("node", "")
    path = f"{_NODES}/{name}"
    if not name or "/" in name or ".." in name or connection.find(path, deadline) is None:
        raise UsageError(f"the cluster has no node {name!r}", next_step="kubectl get nodes")
    return path


def _cordoned(arguments: Arguments, state: State) -> Values:
    wanted = arguments.get("cordoned", "true").strip().lower()
    if wanted not in ("true", "false"):
        raise UsageError(f"cordoned must be true or false (got {wanted!r})")
    return {UNSCHEDULABLE: True if wanted == "true" else None}


EVICT_POD = EvictAction("kubernetes.pod.evict", "pod", (Right("get", "", "pods"), *_EVICT))
DRAIN = EvictAction(
    "kubernetes.node.drain",
    "node",
    (
        Right("get", "", "nodes", cluster=True),
        Right("list", "", "pods", cluster=True),
        Right("get", "", "pods", cluster=True),
        Right("create", "", "pods", "eviction", cluster=True),
    ),
)
CORDON = FieldsAction(
    name="kubernetes.node.cordon",
    aspect="scheduling",
    arguments={"node": "node-1", "cordoned": "true"},
    optional=frozenset({"cordoned"}),
    locate=_locate_node,
    select=lambda _: (UNSCHEDULABLE,),
    desired=_cordoned,
    rights=(Right("get", "", "nodes", cluster=True), Right("patch", "", "nodes", cluster=True)),
)
