"""The number of replicas of a router that starts them: at least so many ahead of a peak, and no more after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.admin_api import AdminRequest, curl_command, decode_response, send, validate_base_url
from latdoctor.remediation.change import Deadline, Receipt, Refused, State, Undo, Values
from latdoctor.remediation.target import Access, Target, TargetKind

PATH, REPLICAS_PATH = "/admin/scale", "/admin/replicas"
REPLICAS = "replicas"
_READY = "ready"


class _Scale(Struct, frozen=True):
    replicas: int


class _ListedReplica(Struct, frozen=True):
    state: str


@dataclass(frozen=True, slots=True)
class ScaleAction:
    """Sets the number of replicas by `replicas: 4`. `choose`: of the present and the given number, the one to have."""

    name: str
    choose: Callable[[int, int], int]
    kinds: frozenset[TargetKind] = frozenset({TargetKind.REFERENCE_ROUTER})
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {REPLICAS}:
            yield "takes one argument, `replicas: N`"

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return validate_base_url(target.admin) + PATH

    def resource(self, access: Access, resource_id: str) -> RouterScale:
        return RouterScale(access, resource_id)

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        wanted = field_values.parse_number(REPLICAS, arguments.get(REPLICAS, ""))
        present = state.values[REPLICAS]
        if not isinstance(wanted, int) or not isinstance(present, int) or wanted < 1:
            raise UsageError(f"replicas must be a whole number of at least 1 (got {arguments.get(REPLICAS)!r})")
        return {REPLICAS: self.choose(present, wanted)}


@dataclass(frozen=True, slots=True)
class RouterScale:
    """How many replicas a router should have."""

    access: Access
    url: str

    def read(self, deadline: Deadline) -> State:
        response = send(AdminRequest("GET", self.url), self.access.token, deadline)
        if not response.version:
            raise Refused("the response has no ETag, which a safe change needs", where=self.url)
        found = decode_response(response, _Scale, self.url)
        return State({REPLICAS: found.replicas}, response.version, instance=response.instance)

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Return once it is accepted; `incomplete` says what starts or ends still."""
        request = AdminRequest("PUT", self.url, msgspec.json.encode(dict(values)), version, operation)
        return send(request, self.access.token, deadline).receipt

    def manual_command(self, values: Values) -> str:
        return curl_command("PUT", self.url, msgspec.json.encode(dict(values)))

    def incomplete(self, deadline: Deadline) -> str:
        """How many replicas are ready, while they are not as many as there should be; empty then."""
        wanted = self.read(deadline).values[REPLICAS]
        url = self.url.removesuffix(PATH) + REPLICAS_PATH
        found = decode_response(send(AdminRequest("GET", url), self.access.token, deadline), list[_ListedReplica], url)
        ready = sum(one.state == _READY for one in found)
        return "" if ready == len(found) == wanted else f"{ready} of {wanted} replicas ready, {len(found)} known"


AT_LEAST = ScaleAction("router.replicas.at-least", max)
RELEASE = ScaleAction("router.replicas.release", min)
