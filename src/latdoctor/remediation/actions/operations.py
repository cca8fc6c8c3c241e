"""Operations of the reference server and its router: warm-up, worker restart, reload, draining, replica replacement.

An operation increments a counter of the target, which shows whether it took effect; it cannot be undone and leaves no
state that would need it. Only draining is a field that is set and restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec
from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.remediation.actions import field_values
from latdoctor.remediation.admin_api import (
    ANY_VERSION,
    AdminRequest,
    AdminResponse,
    curl_command,
    decode_response,
    send,
    validate_base_url,
)
from latdoctor.remediation.change import Contended, Deadline, Receipt, Refused, State, Undo, Unreachable, Value, Values
from latdoctor.remediation.target import Access, Target, TargetKind

SERVER_PATH = "/admin/acts"
REPLICAS_PATH = "/admin/replicas"
DRAINING = "draining"
_STARTS = "starts."  # field of the replica NAME: starts.NAME, the number of its processes so far
_PATHS = {
    "warm_ups": "/admin/warm-up",
    "worker_restarts": "/admin/restart-worker",
    "reloads": "/admin/reload",
    DRAINING: "/admin/draining",
}


class _ServerCounters(Struct, frozen=True):
    draining: bool
    warm_ups: int
    worker_restarts: int
    reloads: int


class _ServerAction:
    """The resource of the server's actions."""

    __slots__ = ()

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return validate_base_url(target.admin) + SERVER_PATH

    def resource(self, access: Access, resource_id: str) -> ServerOperations:
        return ServerOperations(access, resource_id)


@dataclass(frozen=True, slots=True)
class OperationAction(_ServerAction):
    """Runs an operation of the server once. It takes no arguments."""

    name: str
    counter: str
    kinds: frozenset[TargetKind] = frozenset({TargetKind.REFERENCE})
    undos: frozenset[Undo] = frozenset({Undo.NONE_NEEDED})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if arguments:
            yield f"takes no arguments (got {', '.join(arguments)})"

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        return {self.counter: _count(state, self.counter) + 1}


@dataclass(frozen=True, slots=True)
class DrainingAction(_ServerAction):
    """Takes the server out of service or back into it: `draining: true` or `false`."""

    name: str = "server.draining.set"
    kinds: frozenset[TargetKind] = frozenset({TargetKind.REFERENCE})
    undos: frozenset[Undo] = frozenset({Undo.RESTORE})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {DRAINING}:
            yield "takes one argument, `draining: true` or `draining: false`"
        for text in arguments.values():
            if text.strip().lower() not in ("true", "false") and "$" not in text:
                yield f"draining must be true or false (got {text!r})"

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        unknown = next((name for name in arguments if name != DRAINING), None)
        if unknown is not None:
            raise UsageError(f"unknown argument {unknown!r}", next_step=f"the one argument is {DRAINING}")
        return {DRAINING: field_values.parse(DRAINING, arguments.get(DRAINING, ""), state.values[DRAINING])}


@dataclass(frozen=True, slots=True)
class ServerOperations:
    """The operation counters of a server and its draining flag. Each has its own URL, so one is written at a time."""

    access: Access
    url: str

    def read(self, deadline: Deadline) -> State:
        response = send(AdminRequest("GET", self.url), self.access.token, deadline)
        counters = decode_response(response, _ServerCounters, self.url)
        version = _required_etag(response.version, self.url)
        return State(msgspec.structs.asdict(counters), version, instance=response.instance)

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        name, value = _single(values)
        if name != DRAINING:
            state = self.read(deadline)
            if state.version != version:
                raise Contended("another operation ran meanwhile", where=self.url)
            if value != _count(state, name) + 1:
                raise Refused(f"{name} is {state.values[name]} and cannot be set to {value}", where=self.url)
        return send(self._request(name, value, version, operation), self.access.token, deadline).receipt

    def manual_command(self, values: Values) -> str:
        request = self._request(*_single(values), ANY_VERSION)
        return curl_command(request.method, request.url, request.content)

    def _request(self, name: str, value: Value, version: str, operation: str = "") -> AdminRequest:
        if name not in _PATHS:
            raise Refused(f"unknown operation {name!r}", where=self.url)
        url = self.url.removesuffix(SERVER_PATH) + _PATHS[name]
        if name == DRAINING:
            return AdminRequest("PUT", url, msgspec.json.encode({DRAINING: value}), version, operation)
        return AdminRequest("POST", url, None, version, operation)


class _Replica(Struct, frozen=True):
    name: str
    state: str
    pid: int
    starts: int


@dataclass(frozen=True, slots=True)
class ReplaceReplicaAction:
    """Drains a replica, ends its process and starts a new one: `replica: NAME`."""

    name: str = "router.replica.replace"
    kinds: frozenset[TargetKind] = frozenset({TargetKind.REFERENCE_ROUTER})
    undos: frozenset[Undo] = frozenset({Undo.NONE_NEEDED})

    def check_arguments(self, arguments: Mapping[str, str]) -> Iterator[str]:
        if set(arguments) != {"replica"}:
            yield "takes one argument, `replica: NAME`"
        elif not arguments["replica"].strip():
            yield "the name of the replica is empty"

    def resource_id(self, target: Target, arguments: Mapping[str, str]) -> str:
        return validate_base_url(target.admin) + REPLICAS_PATH

    def resource(self, access: Access, resource_id: str) -> Replicas:
        return Replicas(access, resource_id)

    def desired_values(self, arguments: Mapping[str, str], state: State) -> Values:
        replica = arguments.get("replica", "")
        if _STARTS + replica not in state.values:
            known = [name.removeprefix(_STARTS) for name in state.values]
            raise UsageError(f"unknown replica {replica!r}", next_step=field_values.suggest(replica, known))
        return {_STARTS + replica: _count(state, _STARTS + replica) + 1}


@dataclass(frozen=True, slots=True)
class Replicas:
    """The number of processes that each replica of a router has had."""

    access: Access
    url: str

    def read(self, deadline: Deadline) -> State:
        replicas, response = self._fetch(deadline)
        starts = {_STARTS + one.name: one.starts for one in replicas}
        return State(dict(starts), response.version, instance=response.instance)

    def write(self, values: Values, version: str, deadline: Deadline, operation: str = "") -> Receipt:
        """Return once the new process runs; it need not be ready yet."""
        field, starts = _single(values)
        name = field.removeprefix(_STARTS)
        replica, current_version = self._replica(name, deadline)
        if current_version != version:
            raise Contended("another replica was started meanwhile", where=self.url)
        if starts != replica.starts + 1:
            raise Refused(f"starts of {name} is {replica.starts} and cannot be set to {starts}", where=self.url)
        if replica.state == "draining" or not replica.pid:
            raise Contended(f"replica {name} is being replaced already", where=self.url)
        request = AdminRequest("POST", self._replace_url(name), None, version, operation)
        receipt = send(request, self.access.token, deadline).receipt
        try:
            while self._replica(name, deadline)[0].starts <= replica.starts:
                if not deadline.pause():
                    raise Unreachable("no time left", where=self.url)
        except Unreachable as error:  # also if the time runs out during a request
            raise Unreachable(f"replica {name} has ended and has no new process yet", where=self.url) from error
        return Receipt(instance=receipt.instance)  # the version changes once more, when the process starts

    def manual_command(self, values: Values) -> str:
        return curl_command("POST", self._replace_url(_single(values)[0].removeprefix(_STARTS)))

    def _replace_url(self, name: str) -> str:
        return f"{self.url}/{quote(name, safe='')}/replace"

    def _replica(self, name: str, deadline: Deadline) -> tuple[_Replica, str]:
        replicas, response = self._fetch(deadline)
        for one in replicas:
            if one.name == name:
                return one, response.version
        raise Refused(f"replica {name!r} no longer exists", where=self.url)

    def _fetch(self, deadline: Deadline) -> tuple[list[_Replica], AdminResponse]:
        response = send(AdminRequest("GET", self.url), self.access.token, deadline)
        _required_etag(response.version, self.url)
        return decode_response(response, list[_Replica], self.url), response


def _count(state: State, name: str) -> int:
    return int(state.values[name] or 0)


def _single(values: Values) -> tuple[str, Value]:
    """The one field to write. Raises Refused for several."""
    if len(values) != 1:
        raise Refused(f"one operation can run at a time (got {', '.join(values) or 'none'})")
    return next(iter(values.items()))


def _required_etag(version: str, url: str) -> str:
    if not version:
        raise Refused("the response has no ETag, without which an operation could run twice", where=url)
    return version


WARM_UP = OperationAction("server.warm-up", "warm_ups")
RESTART_WORKER = OperationAction("server.worker.restart", "worker_restarts")
RELOAD = OperationAction("server.reload", "reloads")
SET_DRAINING = DrainingAction()
REPLACE_REPLICA = ReplaceReplicaAction()
