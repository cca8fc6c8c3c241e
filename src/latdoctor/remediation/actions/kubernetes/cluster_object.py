"""One object of a cluster as a resource: some of its fields, written by a JSON Patch that tests what it replaces.

A write names the object's uid, resourceVersion and generation and every old value. It is sent as a dry run first, and
what would be stored is compared with what was wanted: an API server drops fields that it does not know. The version of
a resource is the generation, which a status update leaves alone; of a kind without one it is a digest of the spec.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from latdoctor.cluster_api import JSON_PATCH, ApiRequest
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object, RequestRejected
from latdoctor.remediation.actions.kubernetes.fields import digest, merge_of, patch_of, raw_at, value_at, without
from latdoctor.remediation.actions.kubernetes.owners import caution_of
from latdoctor.remediation.actions.kubernetes.workload import incomplete, workload_path
from latdoctor.remediation.change import Contended, Deadline, Receipt, Refused, State, Values, has_values
from latdoctor.remediation.target import canonical_url

Select = Callable[[Object], Sequence[str]]  # the pointers of the fields that an object has, or could have
MANAGER = "latdoctor"  # the field manager of our writes
_FENCE = "/metadata/annotations/latdoctor.dev~1fence"


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """The fields of the object at `path` that `select` names."""

    connection: Connection
    path: str
    select: Select

    @property
    def where(self) -> str:
        return f"{canonical_url(self.connection.workload.cluster)}{self.path}"

    def read(self, deadline: Deadline) -> State:
        return self.state(self.connection.get(self.path, deadline))

    def state(self, found: Object) -> State:
        pointers = tuple(self.select(found))
        described = {"spec": found.get("spec"), "metadata": {"annotations": raw_at(found, "/metadata/annotations")}}
        return State(
            {one: value_at(found, one) for one in pointers},
            version_of(found),
            caution_of(found),
            rest=digest(without(described, (*pointers, _FENCE))),
            instance=uid_of(found),
        )

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        found = self.connection.get(self.path, deadline)
        if version_of(found) != version:
            raise Contended("the object has changed since it was read", where=self.where)
        if has_values(self._values(found, values), values):
            return self._fence(found, operation, deadline)
        self._require_kept(self._patch(found, values, deadline, dry_run=True), values, "would keep")
        stored = self._patch(found, values, deadline)
        self._require_kept(stored, values, "has kept")
        return Receipt(version_of(stored), uid_of(stored))

    def incomplete(self, deadline: Deadline) -> str:
        """What the change of a workload still waits for; empty once its rollout is complete."""
        if self.path != workload_path(self.connection.workload):
            return ""
        return incomplete(self.connection.get(self.path, deadline))

    def manual_command(self, values: Values) -> str:
        content = msgspec.json.encode(merge_of(values)).decode()
        *_, kind, name = self.path.split("/")
        kubectl = kubectl_command(self.connection, namespaced="/namespaces/" in self.path)
        return f"{kubectl} patch {kind} {name} --type={self._patch_type} -p {shlex.quote(content)}"

    @property
    def _patch_type(self) -> str:
        """A custom resource takes no strategic merge patch."""
        group = self.path.split("/")[2]
        return "strategic" if "." not in group or self.path.startswith("/api/") else "merge"

    def _values(self, found: Object, values: Values) -> Values:
        return {one: value_at(found, one) for one in values}

    def _fence(self, found: Object, operation: str, deadline: Deadline) -> Receipt:
        """Change the resourceVersion and nothing else, so that a delayed write of ours is rejected by its test."""
        if raw_at(found, _FENCE) is None:
            found = self._patch(found, {_FENCE: operation or MANAGER}, deadline)
        cleared = self._patch(found, {_FENCE: None}, deadline)
        return Receipt(version_of(cleared), uid_of(cleared))

    def _patch(self, found: Object, values: Values, deadline: Deadline, *, dry_run: bool = False) -> Object:
        """Raises Contended where the object is not as in `found` any more, Refused where the patch is rejected."""
        tested = ["/metadata/uid", "/metadata/resourceVersion"]
        if raw_at(found, "/metadata/generation") is not None:
            tested.append("/metadata/generation")
        query = {"fieldManager": MANAGER, **({"dryRun": "All"} if dry_run else {})}
        body = patch_of(found, values, tested)
        try:
            return self.connection.send(ApiRequest("patch", self.path, body, JSON_PATCH, query), deadline)
        except RequestRejected as rejected:
            now = self.connection.get(self.path, deadline)
            if raw_at(now, "/metadata/resourceVersion") != raw_at(found, "/metadata/resourceVersion"):
                raise Contended("another client wrote at the same time", where=self.where) from rejected
            raise

    def _require_kept(self, stored: Mapping[str, Any], values: Values, verb: str) -> None:
        """Raises Refused where the API server stores other values than it was sent."""
        now = {one: value_at(stored, one) for one in values}
        differing = [one for one, value in values.items() if not has_values(now, {one: value})]
        if differing:
            shown = "; ".join(f"{one} {now[one]!r} for {values[one]!r}" for one in differing)
            raise Refused(f"the API server {verb} other values: {shown}", where=self.where)


def uid_of(found: Object) -> str:
    return str(raw_at(found, "/metadata/uid") or "")


def version_of(found: Object) -> str:
    """An object that was deleted and created again begins with the same generation, so the uid is part of it."""
    generation = raw_at(found, "/metadata/generation")
    content = str(generation) if generation is not None else f"sha256:{digest(found.get('spec'))}"
    return f"{uid_of(found)} {content}"


def kubectl_command(connection: Connection, *, namespaced: bool = True) -> str:
    """`kubectl` with the login and the namespace of the workload."""
    workload = connection.workload
    parts = ["kubectl"]
    parts += ["--kubeconfig", shlex.quote(workload.kubeconfig)] if workload.kubeconfig else []
    parts += ["--context", shlex.quote(workload.context)] if workload.context else []
    parts += ["-n", shlex.quote(workload.namespace)] if namespaced else []
    return " ".join(parts)
