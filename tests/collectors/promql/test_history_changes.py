"""What changed over a history: answers to the questions about it → events."""

from __future__ import annotations

import pytest

from latdoctor.collectors.promql import CHANGES, label_changes
from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import PlannedQuery, PrometheusTarget, QueryPlan
from latdoctor.dialects.loader import shipped
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Event

END = 1_795_000_000.0
PLAN = QueryPlan(END - 3600, END, 300.0)
STEP = 5400 / label_changes.STEPS
A, B = PrometheusTarget("a:8000", "chat"), PrometheusTarget("b:8000", "chat")


def line(value: float = 1.0, since: int = 0, until: int = label_changes.STEPS, **labels: str) -> QuerySeries:
    """A series from step to step, of target a unless it says another."""
    times = tuple(END - 5400 + index * STEP for index in range(since, until + 1))
    known = {"job": "chat", "instance": "a:8000", "__name__": labels.pop("name", "")}
    return QuerySeries({**known, **labels}, times, (value,) * len(times))


def told(role: str, *lines: QuerySeries, dialect: str = "", signal: str = "") -> list[Event]:
    asked = PlannedQuery(role, "x", END, dialect=dialect, signal=signal, artifact="promql/1-p/07-change.json")
    return list(label_changes.events(PLAN, [(asked, lines)], shipped(), {A: "a:8000", B: "b:8000"}))


def at(index: int) -> float:
    return END - 5400 + index * STEP


def test_a_model_version_in_a_label() -> None:
    old = line(model_version="v6", replica="0", until=120)
    new = line(model_version="v7", replica="0", since=121)
    (event,) = told(label_changes.LABEL, old, new, dialect="reference", signal="model.version")
    assert (event.signal, event.subject) == ("change.model", "replica/0@a:8000")
    assert event.time == pytest.approx(at(121))
    assert event.fields == {"what": "model version", "from": "v6", "to": "v7"}
    assert event.origin.artifact == "promql/1-p/07-change.json"


def test_a_rollout_by_new_pods_is_an_event_of_the_service() -> None:
    old = [line(model_version="v6", instance=f"10.0.0.{n}:80", replica="0", until=150 + n) for n in range(3)]
    new = [line(model_version="v7", instance=f"10.0.1.{n}:80", replica="0", since=140 + n) for n in range(3)]
    (event,) = told(label_changes.LABEL, *old, *new, dialect="reference", signal="model.version")
    assert event.subject == "service/chat/replica/0"
    assert event.time == pytest.approx(at(140))
    assert event.fields["to"] == "v7"


@pytest.mark.parametrize(
    ("dialect", "signal", "before", "after", "message"),
    [
        ("triton", "model.version", {"model": "m", "version": "1"}, {"model": "m", "version": "2"}, "1 → 2"),
        ("vllm", "model", {"model_name": "llama-2"}, {"model_name": "llama-3"}, "llama-2 → llama-3"),
        ("reference", "model.dtype", {"dtype": "int8", "replica": "0"}, {"dtype": "fp32", "replica": "0"},
         "int8 → fp32"),
        ("dcgm", "gpu.driver_version", {"gpu": "0", "DCGM_FI_DRIVER_VERSION": "550"},
         {"gpu": "0", "DCGM_FI_DRIVER_VERSION": "560"}, "550 → 560"),
    ],
)  # fmt: skip
def test_labels_of_servers(
    dialect: str, signal: str, before: dict[str, str], after: dict[str, str], message: str
) -> None:
    (event,) = told(
        label_changes.LABEL, line(until=99, **before), line(since=100, **after), dialect=dialect, signal=signal
    )
    assert f"{event.fields['from']} → {event.fields['to']}" == message


def test_every_change_label_is_queried_and_gives_a_catalogued_event() -> None:
    asked = list(label_changes.change_queries(PLAN, shipped(), ["chat", "b"], ['pod=~"x"']))
    assert {one.role for one in asked} == label_changes.ROLES
    assert all('job=~"b|chat"' in one.expression and 'pod=~"x"' in one.expression for one in asked)
    assert all(one.start == END - 5400 and one.step == STEP for one in asked)
    marks = {(one.dialect, one.signal) for one in asked if one.role == label_changes.LABEL}
    assert {("reference", "model.version"), ("triton", "model.version"), ("vllm", "model")} <= marks
    assert catalogue().keys() >= CHANGES


def test_each_process_start_is_reported_with_its_time() -> None:
    first, second = line(END - 90_000, until=120), line(END - 2690, since=121)
    events = told(label_changes.START, first, second, line(END - 90_000, instance="b:8000"), line(7.0, instance="c"))
    assert [(event.subject, event.time) for event in events] == [
        ("server/a:8000", END - 90_000),
        ("server/b:8000", END - 90_000),
        ("server/a:8000", END - 2690),
    ]


def test_versions_of_builds() -> None:
    build = {"name": "gateway_build_info", "version": "1.2.0", "revision": "0123456789abcdef"}
    again = {**build, "version": "1.3.0"}
    python = line(name="python_info", version="3.11.4")
    (event,) = told(label_changes.BUILD, line(until=99, **build), line(since=100, **again), python)
    assert event.fields == {
        "what": "gateway version",
        "from": "1.2.0 0123456789ab",
        "to": "1.3.0 0123456789ab",
    }
    assert event.signal == "change.version"


def test_configurations_by_hash_by_labels_and_by_reload() -> None:
    hashes = [line(1.5e14, until=99, name="router_config_hash"), line(2.5e14, since=100, name="router_config_hash")]
    (event,) = told(label_changes.CONFIG, *hashes)
    assert (event.signal, event.fields, event.time) == ("change.config", {"what": "router"}, pytest.approx(at(100)))
    cache = {"name": "vllm:cache_config_info", "block_size": "16", "cache_dtype": "auto"}
    (event,) = told(label_changes.CONFIG, line(until=99, **cache), line(since=100, **{**cache, "block_size": "32"}))
    assert event.fields == {"what": "vllm:cache block_size 16 → 32"}
    name = "router_config_last_reload_success_timestamp_seconds"
    reloads = [line(END - 80_000, until=99, name=name), line(END - 1200, since=100, name=name)]
    (event,) = told(label_changes.RELOAD, *reloads)
    assert (event.fields, event.time) == ({"what": "router reloaded"}, END - 1200)


def test_replicas_that_come_and_go() -> None:
    whole = QuerySeries({"job": "chat"}, line().times, (3.0,) * 121 + (2.0,) * 120)
    (event,) = told(label_changes.REPLICAS, whole)
    assert (event.signal, event.subject) == ("change.replicas", "service/chat")
    assert event.fields == {"what": "replicas", "from": "3", "to": "2"}
    assert event.time == pytest.approx(at(121))


def test_hostile_texts_are_harmless_and_events_are_bounded() -> None:
    lines = [
        line(model_version=f"\x1b[31mv{index}\n", replica="0", since=index, until=index)
        for index in range(label_changes.STEPS)
    ]
    events = told(label_changes.LABEL, *lines, dialect="reference", signal="model.version")
    assert len(events) == 50
    assert events[-1].fields["to"] == f"v{label_changes.STEPS - 1}"
    assert all(str(value).isprintable() for event in events for value in event.fields.values())


@pytest.mark.parametrize("times", [(1e308,), (-1e308,), (END + 1e6,)])
def test_times_outside_the_range_are_excluded(times: tuple[float, ...]) -> None:
    wild = QuerySeries({"job": "chat", "instance": "a:8000", "model_version": "v7", "replica": "0"}, times, (1.0,))
    steady = line(model_version="v6", replica="0")
    assert not told(label_changes.LABEL, steady, wild, dialect="reference", signal="model.version")
    assert not told(label_changes.REPLICAS, QuerySeries({"job": "chat"}, times, (1.0,)))
