"""Turning knobs of the reference server: what is a knob, and what a value may be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions import field_values, find_action
from latdoctor.remediation.actions.config_endpoint import ROUTER_CONFIG, SERVER_CONFIG, flatten, merge_patch
from latdoctor.remediation.change import Deadline, Refused, State, Value
from latdoctor.remediation.target import Access, Target
from tests.lab.server.running_server import TOKEN, Running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Running() as running:
        yield running


@pytest.fixture
def access(server: Running) -> Access:
    return Access(Target("lab", "reference", admin=f"{server.url}/"), Secret(TOKEN))


def state_of(access: Access) -> State:
    return SERVER_CONFIG.resource(access, SERVER_CONFIG.resource_id(access.target, {})).read(Deadline.after(10))


def test_only_live_settings_are_fields(access: Access) -> None:
    state = state_of(access)
    assert state.values["batching.scheduler"] == "token-budget"
    assert state.values["batching.buckets"] == "[64,128,256,384,512]"
    assert "memory.backend" not in state.values
    assert state.version.startswith('"')
    with pytest.raises(UsageError, match=r"no setting 'memory.backend' can be changed at run time"):
        SERVER_CONFIG.desired_values({"memory.backend": "arena"}, state)
    with pytest.raises(UsageError, match=r"did you mean batching\.max_batch_tokens"):
        SERVER_CONFIG.desired_values({"batch.max_batch_tokens": "1"}, state)


GOOD: list[tuple[str, str, Value, Value]] = [
    ("batching.scheduler", "count-only", "token-budget", "count-only"),
    ("batching.max_batch_tokens", "2048", 1024, 2048),
    ("batching.max_waste", "20%", 0.3, 0.2),
    ("batching.max_waste", "0.2", 0, 0.2),
    ("batching.max_wait_ms", "250ms", 0, 250),
    ("batching.max_wait_ms", "1.5 s", 0, 1500),
    ("batching.max_wait_ms", "250", 0.5, 250),
    ("batching.max_wait_ms", "0.3ms", 0, 0.3),
    ("sessions.ttl_s", "10min", 3600, 600),
    ("memory.limit_mib", "1GiB", 4096, 1024),
    ("batching.long_seconds", "500ms", 15.0, 0.5),
    ("batching.buckets", "[ 64, 128 ]", "[64,512]", "[64,128]"),
    ("model.version", "[v1", "v2", "[v1"),
    ("governance.lanes", "True", False, True),
    ("weights.r1", "0.5", None, 0.5),
    ("weights.r1", "null", None, None),
]


@pytest.mark.parametrize(("name", "text", "now", "value"), GOOD)
def test_value_has_the_type_of_the_current_one(name: str, text: str, now: Value, value: Value) -> None:
    found = field_values.parse(name, text, now)
    assert (found, type(found)) == (value, type(value))


BAD: list[tuple[str, str, Value, str]] = [
    ("governance.lanes", "1", False, "true or false"),
    ("batching.max_batch_tokens", "many", 1024, "not a quantity"),
    ("batching.max_batch_tokens", "20ms", 1024, "a share such as"),
    ("batching.max_wait_ms", "5MiB", 0, "a time such as"),
    ("memory.limit_mib", "5ms", 4096, "a size such as"),
    ("batching.max_wait_ms", "1e999", 0, "finite"),
    ("batching.max_wait_ms", "nan", 0, "not a quantity"),
    ("batching.buckets", "64", "[64]", "a list such as"),
    ("batching.buckets", "[64", "[64]", "a list such as"),
    ("batching.buckets", "[" * 100_000, "[64]", "a list such as"),
    ("batching.buckets", "[{}]", "[64]", "a list such as"),
]


@pytest.mark.parametrize(("name", "text", "now", "why"), BAD)
def test_invalid_value_is_rejected(name: str, text: str, now: Value, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        field_values.parse(name, text, now)
    assert len(str(raised.value)) < 1000


def test_weight_is_a_number_or_removed() -> None:
    state = State({"weights.r1": 0.5, "weights.r2": None}, '"1"')
    assert ROUTER_CONFIG.desired_values({"weights.r1": "null", "weights.r2": "20%"}, state) == {
        "weights.r1": None,
        "weights.r2": 0.2,
    }
    with pytest.raises(UsageError, match="not a quantity"):
        ROUTER_CONFIG.desired_values({"weights.r1": "true"}, state)
    with pytest.raises(UsageError, match=r"no setting 'weights\.r3'"):
        ROUTER_CONFIG.desired_values({"weights.r3": "1"}, state)


def test_config_arguments_are_checked_without_a_target() -> None:
    assert list(SERVER_CONFIG.check_arguments({"batching.max_wait_ms": "$wait", "weights.r-1.x": "1"})) == []
    assert list(SERVER_CONFIG.check_arguments({}))
    assert len(list(SERVER_CONFIG.check_arguments({"Batching": "1", "a.b;c": "1"}))) == 2


def test_patch_contains_only_our_fields() -> None:
    assert merge_patch({"batching.buckets": "[1,2]", "batching.age_ms": 5, "sticky": True, "weights.a.b": None}) == {
        "batching": {"buckets": [1, 2], "age_ms": 5},
        "sticky": True,
        "weights": {"a.b": None},
    }


@pytest.mark.parametrize("whole", [{"a": {"b": {}}}, {"a": {"b": float("nan")}}])
def test_invalid_configuration_is_refused(whole: dict[str, object]) -> None:
    with pytest.raises(Refused, match="not a configuration"):
        flatten(whole, "x")


def test_target_rejects_invalid_configuration(access: Access) -> None:
    resource = SERVER_CONFIG.resource(access, SERVER_CONFIG.resource_id(access.target, {}))
    before = resource.read(Deadline.after(10))
    with pytest.raises(Refused, match="configuration is not valid"):
        resource.write({"batching.max_batch_tokens": 1}, before.version, Deadline.after(10))
    assert resource.read(Deadline.after(10)) == before


@pytest.mark.parametrize(
    "admin", ["", "127.0.0.1:1", "ftp://a", "http://", "http://u:p@h/", "http://h?x=1", "http://h\n"]
)
def test_invalid_admin_url_is_rejected(admin: str) -> None:
    with pytest.raises(UsageError) as raised:
        SERVER_CONFIG.resource_id(Target("x", "reference", admin=admin), {})
    assert "u:p" not in str(raised.value)


def test_actions_are_found_by_name() -> None:
    assert find_action("server.config.set") is SERVER_CONFIG
    assert find_action("nothing") is None
