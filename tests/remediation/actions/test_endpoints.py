"""The corners of what is done over HTTP: counts that have no way back, replicas that drain, pages of others."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from latdoctor.errors import LatdoctorError, UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions import config_endpoint, http_json, operations
from latdoctor.remediation.actions.config_endpoint import ROUTER_CONFIG, SERVER_CONFIG
from latdoctor.remediation.actions.http_json import SET_JSON, merge, settable_fields
from latdoctor.remediation.actions.operations import RELOAD, REPLACE_REPLICA, SET_DRAINING, WARM_UP
from latdoctor.remediation.admin_api import AdminResponse
from latdoctor.remediation.change import Contended, Deadline, Refused, State, Unreachable
from latdoctor.remediation.target import Access, Target
from tests.lab.server.running_server import PATIENCE, TOKEN, Running
from tests.remediation.actions.action_fixtures import json_page, json_served, routed


def soon() -> Deadline:
    return Deadline.after(PATIENCE)


def test_operation_counter_cannot_be_set_back() -> None:
    with Running() as server:
        access = Access(Target("lab", "reference", admin=server.url), Secret(TOKEN))
        endpoint = WARM_UP.resource(access, WARM_UP.resource_id(access.target, {}))
        state = endpoint.read(soon())
        assert WARM_UP.desired_values({}, state) == {"warm_ups": 1}
        endpoint.write({"warm_ups": 1}, state.version, soon())
        with pytest.raises(Contended):
            endpoint.write({"warm_ups": 1}, state.version, soon())
        state = endpoint.read(soon())
        for count in (0, 1, 3):
            with pytest.raises(Refused, match="cannot be set to"):
                endpoint.write({"warm_ups": count}, state.version, soon())
        with pytest.raises(Refused, match="one operation"):
            endpoint.write({"warm_ups": 2, "reloads": 1}, state.version, soon())
        assert endpoint.read(soon()) == state


def test_two_operations_of_one_plan_are_consecutive() -> None:
    state = State({"draining": False, "warm_ups": 3, "worker_restarts": 0, "reloads": 0}, '"v"')
    assert WARM_UP.desired_values({}, state) == {"warm_ups": 4}
    assert RELOAD.desired_values({}, state) == {"reloads": 1}
    with pytest.raises(UsageError, match="true or false"):
        SET_DRAINING.desired_values({"draining": "maybe"}, state)
    assert list(SET_DRAINING.check_arguments({"draining": "$flag"})) == []
    assert list(SET_DRAINING.check_arguments({"draining": "maybe"}))
    assert list(WARM_UP.check_arguments({"x": "1"}))


def test_draining_replica_is_not_replaced_again() -> None:
    with routed() as (fleet, url):
        target = Target("lab", "reference-router", admin=url)
        access = Access(target, Secret(TOKEN))
        replicas = REPLACE_REPLICA.resource(access, REPLACE_REPLICA.resource_id(target, {}))
        state = replicas.read(soon())
        assert state.values == {"starts.a": 1, "starts.b.1": 1}
        fleet.drain("a")
        with pytest.raises(Contended, match="being replaced already"):
            replicas.write({"starts.a": 2}, state.version, soon())
        with pytest.raises(Refused, match="cannot be set to"):
            replicas.write({"starts.a": 1}, state.version, soon())
        with pytest.raises(UsageError, match="did you mean"):
            REPLACE_REPLICA.desired_values({"replica": "b.2"}, state)


def test_missing_new_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with routed() as (fleet, url):
        target = Target("lab", "reference-router", admin=url)
        replicas = REPLACE_REPLICA.resource(Access(target, Secret(TOKEN)), REPLACE_REPLICA.resource_id(target, {}))
        state = replicas.read(soon())
        monkeypatch.setattr("tests.remediation.actions.action_fixtures._Replacing.start", lambda *_: None)
        with pytest.raises(Unreachable, match="no new process yet"):
            replicas.write({"starts.a": 2}, state.version, Deadline.after(3))  # a busy machine answers in one
        assert fleet.known("a").starts == 1


def test_page_without_etag_has_a_warning() -> None:
    with json_page("PUT", tagged=False)() as world:
        change = world.planned()
        assert "another client" in change.caution
        assert change.version.startswith("sha256:")
        world.ours()
        with pytest.raises(Contended):  # it compares all the same
            world.resource(change).write(change.after, change.version, soon())
    with json_page("PATCH", tagged=True)() as world:
        assert world.planned().caution == ""


def test_weak_etag_is_ignored() -> None:
    with json_served() as server:
        access = Access(Target("page", "http", allow=(server.url,)), Secret())
        page = SET_JSON.resource(access, f"PATCH {server.url}/x")
        answer = AdminResponse(b'{"a": 1}', 'W/"1"')
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(http_json, "send", lambda *_, **__: answer)
            state = page.read(soon())
    assert state.caution
    assert state.version.startswith("sha256:")


def test_only_allowed_urls_are_requested() -> None:
    with json_served() as server:
        allow = (f"{server.url}/things",)
        target = Target("page", "http", allow=allow)
        for where in (f"{server.url}/other", f"{server.url}/thingses", f"{server.url}/things/../other"):
            with pytest.raises(UsageError):
                SET_JSON.resource_id(target, {"url": where})
            with pytest.raises(UsageError):
                SET_JSON.resource(Access(target, Secret()), f"PUT {where}")
        with pytest.raises(UsageError):
            SET_JSON.resource(Access(target, Secret()), f"DELETE {server.url}/things")
        assert server.tokens == set()


def test_name_of_this_machine_is_refused_unless_listed() -> None:
    with json_served() as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr("latdoctor.remediation.admin_api.resolve_host", lambda *_: ["127.0.0.1"])
        named = server.url.replace("127.0.0.1", "config.example")
        target = Target("page", "http", allow=(named,))
        page = SET_JSON.resource(Access(target, Secret(TOKEN)), f"PUT {named}/x")
        with pytest.raises(Refused, match="not public"):
            page.read(soon())
        assert server.tokens == set()
        listed = Target("page", "http", allow=(named, server.url))
        page = SET_JSON.resource(Access(listed, Secret(TOKEN)), f"PUT {named}/x")
        assert page.read(soon()).values["limit"] == 5
        assert server.tokens == {f"Bearer {TOKEN}"}


def test_settable_fields_of_a_page() -> None:
    whole = {
        "a": 1,
        "b": None,
        "c": {"d": "x", "e": {"f": 1}, "g": None},
        "h i": 2,
        "j.k": 3,
        "l": [1],
        "m": float("inf"),
    }
    assert settable_fields(whole) == {"a": 1, "c.d": "x", "l": "[1]"}
    state = State(settable_fields(whole), '"1"')
    assert SET_JSON.desired_values({"url": "u", "method": "PUT", "set.c.d": "y", "set.a": "2"}, state) == {
        "c.d": "y",
        "a": 2,
    }
    with pytest.raises(UsageError, match="no field 'b'"):
        SET_JSON.desired_values({"set.b": "1"}, state)
    assert merge(whole, {"c": {"d": "y"}})["c"] == {"d": "y", "e": {"f": 1}, "g": None}
    with pytest.raises(Refused, match="no longer an object"):
        merge({"c": 1}, {"c": {"d": 1}})


@pytest.mark.parametrize("given", [
    {},
    {"url": "http://h/"},
    {"set.a": "1"},
    {"url": "http://h/", "set.a": "1", "method": "POST"},
    {"url": "http://h/", "set.a b": "1"},
    {"url": "http://h/", "a": "1"},
])  # fmt: skip
def test_arguments_of_a_page_are_checked(given: dict[str, str]) -> None:
    assert list(SET_JSON.check_arguments(given))


JSONS = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = some.binary(max_size=50) | JSONS.map(lambda value: repr(value).encode()) | JSONS.map(msgspec.json.encode)
ENDPOINTS = [
    (config_endpoint, SERVER_CONFIG, Target("x", "reference", admin="http://127.0.0.1:9"), {}),
    (config_endpoint, ROUTER_CONFIG, Target("x", "reference-router", admin="http://127.0.0.1:9"), {}),
    (operations, WARM_UP, Target("x", "reference", admin="http://127.0.0.1:9"), {}),
    (operations, REPLACE_REPLICA, Target("x", "reference-router", admin="http://127.0.0.1:9"), {}),
    (http_json, SET_JSON, Target("x", "http", allow=("http://127.0.0.1:9",)), {"url": "http://127.0.0.1:9/a"}),
]


@pytest.mark.parametrize(
    ("module", "action", "target", "arguments"), ENDPOINTS, ids=lambda one: getattr(one, "name", "")
)
@given(bodies=some.lists(BODIES, min_size=1, max_size=3), tag=some.sampled_from(["", '"1"', 'W/"1"']))
def test_any_response_is_a_state_or_a_typed_error(
    module: object, action: object, target: Target, arguments: dict[str, str], bodies: list[bytes], tag: str
) -> None:
    left = [*bodies]

    def answer(*_: object, **__: object) -> AdminResponse:
        return AdminResponse(left.pop(0) if len(left) > 1 else left[0], tag)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "send", answer)
        where = action.resource_id(target, arguments)  # type: ignore[attr-defined]
        resource = action.resource(Access(target, Secret()), where)  # type: ignore[attr-defined]
        try:
            state = resource.read(soon())
        except LatdoctorError:
            return
    assert all(value is None or isinstance(value, bool | int | float | str) for value in state.values.values())
