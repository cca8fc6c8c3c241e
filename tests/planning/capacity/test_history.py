"""The limit from ordinary operation: of histories that a known server would have left behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from latdoctor.errors import OperationError
from latdoctor.evidence.model import Origin, Series, to_json
from latdoctor.load.latencies import quantile
from latdoctor.planning.capacity.history import HistorySettings, from_history
from latdoctor.planning.capacity.load_window import LoadWindow, load_windows
from latdoctor.planning.capacity.measurement import CapacityMeasurement, CapacitySource, read_measurement
from latdoctor.planning.capacity.plan import plan_replicas
from latdoctor.planning.capacity.queue_model import QueueModel

SLO, STEP = 0.3, 20.0
SIZES = tuple(Random(0).lognormvariate(0, 0.5) for _ in range(100))
MEAN = sum(SIZES) / len(SIZES)
# 20 ms of a batch and 5 ms for each request in it: at most 200 a second.
SERVER = QueueModel(
    tuple((n, n / (0.02 + 0.005 * n)) for n in (1, 2, 4, 8, 16, 32, 64, 128)),
    tuple(one / MEAN for one in SIZES),
    None,
)
LIMIT = SERVER.limit(SLO, 0.99)
SETTINGS = HistorySettings("http://prometheus:9090", "test server", SLO)


def window(rate: float, number: int, replica: str = "a") -> LoadWindow:
    """A minute of the server at this rate."""
    took = SERVER.latencies(rate, seed=number, requests=max(200, round(rate * STEP)))
    middle = [quantile(took, share) or 0.0 for share in (0.5, 0.95, 0.99)]
    return LoadWindow(replica, number * STEP, STEP, rate, math.fsum(took) / len(took), *middle)


def day(highest: float, windows: int = 36) -> Iterator[LoadWindow]:
    """A day that rises from a tenth of its highest load and falls again."""
    for number in range(windows):
        share = 0.1 + 0.9 * math.sin(math.pi * number / (windows - 1)) ** 2
        yield window(highest * share, number)


def estimated(windows: Sequence[LoadWindow]) -> CapacityMeasurement:
    return from_history(windows, SETTINGS)


@pytest.fixture(scope="module")
def busy_day() -> CapacityMeasurement:
    return estimated(tuple(day(0.75 * LIMIT)))


def test_a_history_that_comes_near_the_limit_gives_it(busy_day: CapacityMeasurement) -> None:
    assert busy_day.problems == ()
    assert busy_day.source is CapacitySource.HISTORY
    assert busy_day.limit == pytest.approx(LIMIT, rel=0.2)
    low, high = busy_day.interval
    assert low <= busy_day.limit <= high
    assert busy_day.history is not None
    assert busy_day.history.service_time == pytest.approx(0.027, rel=0.3)


def test_a_history_far_from_the_limit_gives_a_lower_bound_and_says_so() -> None:
    found = estimated(tuple(day(0.25 * LIMIT)))
    assert found.history is not None
    assert found.history.at_least
    assert found.limit == pytest.approx(0.25 * LIMIT, rel=0.1)
    assert found.limit < LIMIT
    assert "the history does not" in found.problems[0]


def test_a_history_beyond_the_limit_shows_it() -> None:
    found = estimated(tuple(day(1.15 * LIMIT)))
    assert found.first_failing is not None
    assert found.history is not None
    assert not found.history.at_least
    assert found.limit == pytest.approx(LIMIT, rel=0.12)


def test_one_load_alone_says_only_that_it_is_carried() -> None:
    found = estimated([window(0.4 * LIMIT, number) for number in range(20)])
    assert found.history is not None
    assert found.history.at_least
    assert found.limit == pytest.approx(0.4 * LIMIT, rel=0.05)
    assert found.problems


def test_a_history_in_which_nothing_was_within_the_slo_has_no_limit() -> None:
    slow = [msgspec.structs.replace(window(20.0 + number, number), p50=0.5, p95=0.7, p99=0.9) for number in range(20)]
    assert estimated(slow).limit == 0


def test_too_few_steps_are_no_history() -> None:
    with pytest.raises(OperationError, match="12 are needed"):
        estimated([window(10.0, number) for number in range(5)])


def test_the_plan_takes_it_and_says_where_it_is_from(busy_day: CapacityMeasurement, tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    file.write_bytes(to_json(busy_day))
    plan = plan_replicas(read_measurement(file), 600.0)
    assert (plan.source, plan.at_most) == (CapacitySource.HISTORY, False)
    assert plan.replicas == math.ceil(600 / (busy_day.limit * 0.7))
    bound = plan_replicas(estimated(tuple(day(0.25 * LIMIT))), 600.0)
    assert bound.at_most


def test_a_measurement_of_an_earlier_version_is_read(tmp_path: Path, busy_day: CapacityMeasurement) -> None:
    old = msgspec.to_builtins(busy_day)
    del old["source"], old["history"]
    file = tmp_path / "old.json"
    file.write_bytes(msgspec.json.encode(old))
    assert read_measurement(file).source is CapacitySource.MEASURED


def series(signal: str, values: Sequence[float], replica: str = "a", first: float = 0.0) -> Series:
    times = tuple(first + STEP * place for place in range(len(values)))
    return Series(signal, f"replica/{replica}", times, tuple(values), Origin("test"))


def whole(replica: str = "a", first: float = 0.0, steps: int = 10, rate: float = 5.0) -> list[Series]:
    levels = {"arrival.rate": rate, "latency.mean": 0.1, "latency.p50": 0.1, "latency.p95": 0.2, "latency.p99": 0.3}
    return [series(signal, [value] * steps, replica, first) for signal, value in levels.items()]


def test_the_first_steps_of_a_replica_that_has_just_started_do_not_count() -> None:
    found = load_windows([*whole("a"), *whole("b", first=5 * STEP, steps=5)], STEP)
    assert {one.replica: sum(other.replica == one.replica for other in found) for one in found} == {
        "replica/a": 10,
        "replica/b": 3,
    }


def test_steps_with_few_requests_or_an_unknown_latency_do_not_count() -> None:
    assert load_windows(whole(rate=0.2), STEP) == ()
    known = whole()
    known[-1] = series("latency.p99", [math.nan, *[0.3] * 9])
    assert len(load_windows(known, STEP)) == 9
    assert load_windows([one for one in known if one.signal != "latency.p99"], STEP) == ()


@pytest.mark.parametrize(
    ("slo", "share"), [(0.05, 0.25), (0.1, 0.5), (0.2, 0.95), (0.3, 1.0), (1.0, 1.0), (0.2449, 0.97)]
)
def test_the_share_within_an_objective_lies_between_the_known_quantiles(slo: float, share: float) -> None:
    (one, *_) = load_windows(whole(), STEP)
    assert one.within(slo) == pytest.approx(share, abs=0.002)
