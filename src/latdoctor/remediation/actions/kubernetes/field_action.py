"""An action that sets fields of one object of the cluster, and what it checks before: owners, rights and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.actions.kubernetes.cluster_object import ClusterObject
from latdoctor.remediation.actions.kubernetes.connection import Connection, Object, workload_of
from latdoctor.remediation.actions.kubernetes.owners import owner_refusals
from latdoctor.remediation.actions.kubernetes.rights import Right, missing_rights
from latdoctor.remediation.change import Change, Deadline, State, Undo, Values
from latdoctor.remediation.refusal import Refusal
from latdoctor.remediation.target import Access, Target, TargetKind, canonical_url

Arguments = Mapping[str, str]
LOCATED_WITHIN = 10.0  # seconds
_OF = " of "


@dataclass(frozen=True, slots=True)
class FieldsAction:
    """Sets fields of the object that `locate` finds.

    `aspect`: names the fields in the id of the resource. `arguments`: each with an example; those in `optional` may be
    absent. `select`: the pointers of the fields in an object. `desired`: the values that the arguments request.
    `objections`: refusals beside those of the owner and of missing rights.
    """

    name: str
    aspect: str
    arguments: Arguments
    locate: Callable[[Connection, Arguments, Deadline], str]
    select: Callable[[Object], Sequence[str]]
    desired: Callable[[Arguments, State], Values]
    rights: tuple[Right, ...]
    optional: frozenset[str] = frozenset()
    objections: Callable[[Connection, Change, Deadline], Iterator[Refusal]] = lambda *_: iter(())
    object_type: type[ClusterObject] = ClusterObject
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})
    kinds: frozenset[TargetKind] = field(default=frozenset({TargetKind.KUBERNETES}))

    def check_arguments(self, arguments: Arguments) -> Iterator[str]:
        for name in self.arguments:
            if name not in arguments and name not in self.optional:
                yield f"`{name}: {self.arguments[name]}` is missing"
        for name in arguments:
            if name not in self.arguments:
                yield f"{name!r} is not one of {', '.join(self.arguments)}"

    def resource_id(self, target: Target, arguments: Arguments) -> str:
        connection = Connection(workload_of(target))
        path = self.locate(connection, arguments, Deadline.after(LOCATED_WITHIN))
        return f"{self.aspect}{_OF}{canonical_url(connection.workload.cluster)}{path}"

    def resource(self, access: Access, resource_id: str) -> ClusterObject:
        connection = Connection(workload_of(access.target))
        return self.object_type(connection, path_in(resource_id, connection), self.select)

    def desired_values(self, arguments: Arguments, state: State) -> Values:
        return self.desired(arguments, state)

    def refusals(self, access: Access, change: Change, deadline: Deadline) -> Iterator[Refusal]:
        connection = Connection(workload_of(access.target))
        yield from missing_rights(connection, self.rights, deadline)
        yield from owner_refusals(connection.get(path_in(change.resource, connection), deadline))
        yield from self.objections(connection, change, deadline)


def path_in(resource_id: str, connection: Connection) -> str:
    """The path of the object in an id of `FieldsAction`. Raises UsageError for one of another cluster."""
    url = resource_id.partition(_OF)[2]
    cluster = canonical_url(connection.workload.cluster)
    if not url.startswith(f"{cluster}/api"):
        raise UsageError("the resource is not in the cluster of the target", where=resource_id)
    return url.removeprefix(cluster)


def whole_number(name: str, arguments: Arguments, low: int, high: int) -> int:
    """The value of an argument. Raises UsageError unless it is an integer from `low` to `high`."""
    number = field_values.parse_number(name, arguments.get(name, ""))
    if not isinstance(number, int) or not low <= number <= high:
        raise UsageError(f"{name} must be an integer from {low} to {high} (got {arguments.get(name)!r})")
    return number


def present_number(state: State, pointer: str, default: int | None = None) -> int:
    """The integer at `pointer`. Raises UsageError where there is none, and no default."""
    value = state.values.get(pointer)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{pointer} is {value!r}, not a number")
    return value
