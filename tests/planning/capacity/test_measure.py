"""A short measurement of a real process, what binds it, and the plan from it; the benchmark has the figures."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.load.target import Target, TargetKind
from latdoctor.planning.capacity.binding import Bound, bound
from latdoctor.planning.capacity.level import Level
from latdoctor.planning.capacity.measure import MeasureSettings, Measuring
from latdoctor.planning.capacity.measurement import CapacityMeasurement, read_measurement
from latdoctor.planning.capacity.plan import plan_replicas
from latdoctor.planning.capacity.queue_model import QueueModel
from latdoctor.planning.capacity.search import SearchSettings
from tests.cli.running import run
from tests.load.tiny_server import serving

LEVEL = Level(100.0, 10.0, 1000, 900, 0, 0.1, 0.9, ((90, 100),) * 10)
MEASURED = CapacityMeasurement(
    address="http://127.0.0.1:1",
    target="reference, POST /v1/intent",
    date="2026-01-01T00:00:00Z",
    tool_version="0",
    slo=0.5,
    attainment=0.99,
    limit=100.0,
    interval=(97.0, 104.0),
    first_failing=106.0,
    bound_by=Bound.QUEUE,
    is_cliff=True,
    levels=(LEVEL,),
    closed=(),
    lasted=190.0,
    model=QueueModel(((1, 120.0),), (1.0,), 1),
    model_limit=105.0,
    model_error=0.05,
)


def test_levels_rise_until_a_bound_and_the_closed_loop_gives_a_model() -> None:
    lines: list[str] = []
    asked: list[float] = []
    search = SearchSettings(attainment=0.5, highest=40, most_levels=3)
    settings = MeasureSettings(slo=5.0, search=search, start=10, shortest=0.5, longest=1.0, closed=0.4)

    def read(seconds: float) -> dict[str, float]:
        asked.append(seconds)
        return {"queue.time_share": 80.0}

    with serving() as server:
        measured = Measuring(Target(server.address, TargetKind.REFERENCE), settings, read, lines.append).run()
        contents = len({request for request, _, _ in server.attempts})
    assert [one.rate for one in measured.levels] == [10, 20, 40]
    assert all(one.requests and len(one.blocks) for one in measured.levels)
    assert len(asked) == 3
    assert measured.model is not None
    assert measured.model.speeds[0][0] == 1
    assert contents > sum(one.requests for one in measured.levels)  # those of the closed loops, too
    assert any("in flight" in line for line in lines)


def test_a_server_that_answers_nothing_right_is_not_measured() -> None:
    with serving(wrong=True) as server, pytest.raises(OperationError, match="answers none"):
        Measuring(
            Target(server.address, TargetKind.REFERENCE),
            MeasureSettings(slo=1.0, closed=0.3),
            lambda _: {},
            lambda _: None,
        ).run()


@pytest.mark.parametrize(
    ("errors", "signals", "expected"),
    [
        (80, {"queue.time_share": 90.0}, Bound.ERRORS),
        (0, {"queue.time_share": 90.0, "kv.usage": 97.0}, Bound.KV),
        (0, {"queue.time_share": 90.0, "kv.preemption_count": 3.0}, Bound.KV),
        (0, {"queue.time_share": 90.0, "kv.usage": 40.0}, Bound.QUEUE),
        (0, {"queue.time_share": 10.0}, Bound.COMPUTE),
        (0, {}, Bound.UNKNOWN),
    ],
)
def test_the_constraint_is_read_from_the_failing_level(errors: int, signals: dict[str, float], expected: Bound) -> None:
    assert bound(msgspec.structs.replace(LEVEL, errors=errors), signals, 0.99) is expected


def test_without_a_failing_level_nothing_binds() -> None:
    assert bound(None, {}, 0.99) is Bound.NONE


def test_a_plan_keeps_the_reserve_and_says_what_one_lost_replica_means() -> None:
    plan = plan_replicas(MEASURED, 600)
    assert (plan.replicas, plan.least) == (9, 6)
    assert plan.per_replica <= 70
    assert plan.with_one_lost == pytest.approx(0.75)
    assert plan.p99 is not None
    assert 1 / 120 < plan.p99 < 0.2
    alone = plan_replicas(MEASURED, 70)
    assert (alone.replicas, alone.with_one_lost) == (1, None)
    with pytest.raises(ValueError, match="at no rate"):
        plan_replicas(msgspec.structs.replace(MEASURED, limit=0.0), 10)


def test_the_command_plans_from_a_saved_measurement(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    file.write_bytes(msgspec.json.encode(MEASURED))
    assert read_measurement(file) == MEASURED
    text = run(["capacity", "plan", str(file), "--rate", "600"])
    assert text.code == 0
    assert text.out.startswith("9 replicas for 600 req/s with P99 ≤ 500 ms: 66.7 each, of a limit of 100; P99 about ")
    assert "6 would do without the 30 % reserve" in text.out
    assert "with one replica lost each of the others has 75 % of its limit: the SLO holds" in text.out
    document = json.loads(run(["capacity", "plan", str(file), "--rate", "600", "-o", "json"]).out)
    assert (document["replicas"], document["schema_version"]) == (9, "1")


def test_levels_with_too_few_requests_cannot_tell_the_share() -> None:
    search = SearchSettings(attainment=0.99, highest=10, most_levels=1)
    settings = MeasureSettings(slo=5.0, search=search, start=10, shortest=0.5, longest=0.6, closed=0.2)
    with serving() as server:
        measured = Measuring(Target(server.address, TargetKind.REFERENCE), settings, lambda _: {}, lambda _: None).run()
    assert "1 of 1 levels had fewer than 100 requests: too few for 0.99" in measured.problems


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"limit": "x"}'])
def test_another_file_is_no_measurement(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="not a measurement"):
        read_measurement(file)
    assert run(["capacity", "plan", str(file), "--rate", "1"]).code == 2


def test_a_spoiled_measurement_is_planned_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(MEASURED, problems=("the machine was busy",))))
    outcome = run(["capacity", "plan", str(file), "--rate", "600"])
    assert outcome.code == 4
    assert "spoiled: the machine was busy" in outcome.out
