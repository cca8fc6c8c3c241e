"""An autoscaler of KEDA that is paused, so that it neither removes nor adds replicas meanwhile."""

from __future__ import annotations

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.kubernetes.connection import Connection
from latdoctor.remediation.actions.kubernetes.field_action import Arguments, FieldsAction
from latdoctor.remediation.actions.kubernetes.fields import escaped, raw_at
from latdoctor.remediation.actions.kubernetes.rights import Right
from latdoctor.remediation.change import Deadline, State, Values

GROUP = "keda.sh"
_PAUSED = f"/metadata/annotations/{escaped('autoscaling.keda.sh/paused')}"


def scaled_object(connection: Connection, deadline: Deadline) -> str:
    """The path of the ScaledObject that scales the workload; empty without one."""
    workload = connection.workload
    for version in connection.versions(GROUP, deadline):
        path = f"/apis/{GROUP}/{version}/namespaces/{workload.namespace}/scaledobjects"
        for one in connection.items(path, deadline):
            scaled = raw_at(one, "/spec/scaleTargetRef") or {}
            kind = f"{str(scaled.get('kind', 'Deployment')).lower()}s"
            if (kind, scaled.get("name")) == (workload.kind, workload.name):
                return f"{path}/{raw_at(one, '/metadata/name')}"
    return ""


def _locate(connection: Connection, arguments: Arguments, deadline: Deadline) -> str:
    """Raises UsageError where no ScaledObject scales the workload."""
    if path := scaled_object(connection, deadline):
        return path
    step = "--playbook app.scale.out adds replicas"
    raise UsageError(f"no ScaledObject of KEDA scales {connection.workload}", next_step=step)


def _paused(arguments: Arguments, state: State) -> Values:
    return {_PAUSED: "true" if field_values.parse("paused", arguments.get("paused", ""), True) else None}


PAUSE = FieldsAction(
    name="kubernetes.keda.pause",
    aspect="pause",
    arguments={"paused": "true"},
    locate=_locate,
    select=lambda _: (_PAUSED,),
    desired=_paused,
    rights=(
        Right("list", GROUP, "scaledobjects"),
        Right("get", GROUP, "scaledobjects"),
        Right("patch", GROUP, "scaledobjects"),
    ),
)
