"""What each rule takes, from a queue written out."""

from __future__ import annotations

from typing import Any

import pytest

from latdoctor.lab.server.config import BatchingConfig, SchedulerName
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.base import count_cap
from latdoctor.lab.server.schedulers.batch import Lane, Scheduler, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel
from tests.lab.schedulers.samples import batch, works


def filled(scheduler: Scheduler, *lengths: int, apart: float = 0.0) -> Scheduler:
    for work in works(*lengths, apart=apart):
        scheduler.add(work)
    return scheduler


def taken(scheduler: Scheduler, now: float = 0.0) -> list[tuple[str, list[int]]]:
    """The ids of all batches that can be had at `now`, with their reasons."""
    found = []
    while batch := scheduler.take(now):
        found.append((batch.reason, [work.id for work in batch.works]))
    return found


@pytest.mark.parametrize(
    ("name", "settings", "lengths", "expected"),
    [
        ("single", {}, [9, 5], [("full", [0]), ("full", [1])]),
        ("count-only", {"max_batch_requests": 2}, [9, 500, 5], [("full", [0, 1]), ("idle", [2])]),
        ("count-only", {"max_batch_requests": 3}, [9, 500, 5], [("full", [0, 1, 2])]),
        ("long-alone", {}, [9, 8, 376, 7], [("seconds", [0, 1]), ("alone", [2]), ("idle", [3])]),
        ("long-alone", {}, [375, 8], [("idle", [0, 1])]),
        ("long-alone", {"max_batch_requests": 2}, [9, 8, 7], [("full", [0, 1]), ("idle", [2])]),
        ("duration-bounded", {}, [300, 200, 1], [("seconds", [2, 1]), ("idle", [0])]),
        ("duration-bounded", {}, [300, 200], [("seconds", [1, 0])]),  # 20 s are full: nothing could join
        ("duration-bounded", {"max_batch_requests": 2}, [9, 7, 8], [("full", [1, 2]), ("idle", [0])]),
        ("length-buckets", {}, [64, 300, 10, 65], [("bucket", [0, 2]), ("bucket", [1]), ("idle", [3])]),
        ("length-buckets", {"max_batch_tokens": 128}, [10, 64, 64], [("tokens", [0, 1]), ("idle", [2])]),
        ("length-buckets", {}, [900, 513], [("tokens", [0]), ("tokens", [1])]),  # one bucket beyond the last bound
        ("length-buckets", {"buckets": (4, 300)}, [5, 400], [("bucket", [0]), ("idle", [1])]),
        ("token-budget", {}, [300, 40, 50], [("waste", [1, 2]), ("idle", [0])]),
        ("token-budget", {"max_batch_tokens": 100}, [50, 40, 50], [("tokens", [1, 0]), ("idle", [2])]),
        ("token-budget", {"max_batch_requests": 2}, [50, 40, 50], [("full", [1, 0]), ("idle", [2])]),
        ("token-budget", {}, [300, 300], [("idle", [0, 1])]),
        ("token-budget", {}, [512, 512], [("tokens", [0, 1])]),
        ("token-budget", {}, [600, 40], [("tokens", [1]), ("tokens", [0])]),
    ],
)
def test_what_a_rule_takes(
    name: SchedulerName, settings: dict[str, Any], lengths: list[int], expected: list[tuple[str, list[int]]]
) -> None:
    assert taken(filled(build(BatchingConfig(scheduler=name, **settings)), *lengths)) == expected


def test_the_window_of_an_aged_request_grows_to_both_sides() -> None:
    # The oldest (100) waited; 97 pads less than 110, then 110 less than 60; with 60 too much is padding.
    scheduler = filled(build(BatchingConfig(max_waste=0.15)), 100, 10, 97, 60, 110)
    assert taken(scheduler, now=0.3)[0] == ("age", [2, 0, 4])


def test_a_window_that_cannot_hold_all_of_a_length_holds_the_oldest_of_it() -> None:
    scheduler = filled(build(BatchingConfig(max_batch_requests=3)), 50, 40, 40, 40)
    assert taken(scheduler, now=0.3) == [("age", [1, 2, 0]), ("idle", [3])]


def test_a_request_added_late_keeps_the_place_of_its_arrival() -> None:
    scheduler = build(BatchingConfig(scheduler="single"))
    scheduler.add(Work(0, 9, 2.0))
    scheduler.add(Work(1, 9, 1.0))
    assert taken(scheduler, now=2.0) == [("full", [1]), ("full", [0])]


def test_a_second_request_of_the_same_id_is_refused() -> None:
    scheduler = filled(build(BatchingConfig()), 9)
    with pytest.raises(ValueError, match="already waits"):
        scheduler.add(Work(0, 7, 0.0))
    assert len(scheduler.pending) == 1


@pytest.mark.parametrize("name", ["token-budget", "long-alone", "count-only", "duration-bounded", "length-buckets"])
def test_an_idle_worker_waits_for_company_no_longer_than_allowed(name: SchedulerName) -> None:
    scheduler = filled(build(BatchingConfig(scheduler=name, max_wait_ms=100)), 40, 41, apart=0.02)
    assert scheduler.take(0.02) is None
    assert scheduler.wake_at(0.02) == 0.1
    assert scheduler.take(0.099) is None
    assert taken(scheduler, now=0.1) == [("timeout", [0, 1])]
    assert scheduler.wake_at(0.1) is None


def test_a_request_that_waited_for_a_busy_worker_is_no_timeout() -> None:
    assert taken(filled(build(BatchingConfig(max_wait_ms=10)), 40), now=5.0) == [("idle", [0])]


def test_the_timer_of_one_batch_says_nothing_about_the_next() -> None:
    scheduler = filled(build(BatchingConfig(max_wait_ms=10)), 40)
    assert scheduler.take(0.0) is None
    released = [scheduler.take(0.01)]
    scheduler.add(Work(1, 40, 0.02))
    released.append(scheduler.take(5.0))  # the worker was busy until then
    scheduler.add(Work(2, 40, 6.0))
    assert scheduler.take(6.0) is None
    scheduler.drop(frozenset({2}))
    scheduler.add(Work(3, 40, 7.0))
    released.append(scheduler.take(9.0))
    assert [batch.reason for batch in released if batch] == ["timeout", "idle", "idle"]


def test_a_full_batch_does_not_wait() -> None:
    assert taken(filled(build(BatchingConfig(max_wait_ms=100, max_batch_requests=2)), 40, 41)) == [("full", [0, 1])]


def test_a_full_bucket_goes_before_an_older_request_only_until_that_has_aged() -> None:
    batching = BatchingConfig(scheduler="length-buckets", max_wait_ms=1000, age_ms=250, max_batch_requests=2)
    assert taken(filled(build(batching), 500, 10, 11), now=0.1) == [("full", [1, 2])]
    assert taken(filled(build(batching), 500, 10, 11), now=0.3) == [("age", [0]), ("full", [1, 2])]


@pytest.mark.parametrize(("longest", "cap"), [(1, 128), (40, 128), (80, 64), (160, 32), (320, 16), (512, 16)])
def test_batch_size_by_complexity(longest: int, cap: int) -> None:
    assert count_cap(BatchingConfig(size_by_complexity=True), longest) == cap
    assert count_cap(BatchingConfig(), longest) == 32
    queue = filled(build(BatchingConfig(scheduler="count-only", size_by_complexity=True)), *[longest] * 130)
    assert len(taken(queue)[0][1]) == cap


def test_lanes_send_short_ones_first_and_take_turns_once_a_long_one_has_aged() -> None:
    lengths = (500, 10, 11, 499, 12)
    young = build(BatchingConfig(scheduler="single"), lane_boundary=200)
    assert [ids for _, ids in taken(filled(young, *lengths), now=0.25)] == [[1], [2], [4], [0], [3]]
    aged = build(BatchingConfig(scheduler="single"), lane_boundary=200)
    assert [ids for _, ids in taken(filled(aged, *lengths), now=0.26)] == [[0], [1], [3], [2], [4]]


def test_a_request_s_own_lane_goes_before_its_length() -> None:
    scheduler = build(BatchingConfig(), lane_boundary=200)
    for work in (Work(0, 10, 0.0, lane=Lane.LONG), Work(1, 10, 0.0), Work(2, 500, 0.0, lane=Lane.SHORT)):
        scheduler.add(work)
    assert [ids for _, ids in taken(scheduler)] == [[1], [2], [0]]


def test_without_a_timer_a_request_is_due_only_once_an_arrival_came_after_the_wait() -> None:
    scheduler = filled(build(BatchingConfig(scheduler="no-timer", max_wait_ms=100)), 9, 9, apart=0.05)
    assert taken(scheduler, now=9.0) == []
    assert scheduler.wake_at(9.0) is None
    scheduler.add(Work(2, 9, 9.0))
    assert taken(scheduler, now=9.0) == [("arrival", [0, 1])]


def test_without_a_timer_a_late_addition_is_released_with_later_arrivals() -> None:
    scheduler = build(BatchingConfig(scheduler="no-timer"))
    for work in (Work(0, 9, 1.0), Work(1, 9, 2.0), Work(2, 9, 0.5)):
        scheduler.add(work)
    assert taken(scheduler, now=2.0) == [("arrival", [2, 0])]


def sum_of_latencies(model: CostModel, size: int, longest: int, gap: float) -> tuple[float, float]:
    """Of `size` requests that wait and one that comes after `gap`: released now, and held for it."""
    assert model.cost is not None
    now, other, all_ = (model.cost.seconds(count, longest) for count in (size, 1, size + 1))
    return size * now + (now - gap + other), size * (gap + all_) + all_


@pytest.mark.parametrize("fixed", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("gap", [0.0005, 0.002, 0.004, 0.012, 0.05])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("another", [0.0001, 0.003])
def test_an_adaptive_wait_waits_exactly_where_it_lowers_the_sum_of_the_latencies(
    fixed: float, gap: float, size: int, another: float
) -> None:
    model = CostModel()
    for shape in (1, 2, 4, 8) * 10:
        model.observe(batch(*[20] * shape), fixed + another * shape)
    scheduler = build(BatchingConfig(max_wait_ms=600_000, adaptive_wait=True), model)
    for work in [Work(100 + i, 20, i * gap) for i in range(20)]:  # teaches the gap
        scheduler.add(work)
    scheduler.drop(frozenset(range(100, 120)))
    start = 19 * gap
    for work in [Work(i, 20, start) for i in range(size)]:
        scheduler.add(work)
        scheduler.drop(frozenset({100 + i for i in range(20)}))
    mean_gap = gap * 0.9**size  # those came together
    at_once, held = sum_of_latencies(model, size, 20, mean_gap)
    assert (scheduler.take(start) is None) == (held < at_once)
    wake = scheduler.wake_at(start)
    assert wake is None or wake < start + fixed  # never longer than the call that is saved


def test_an_adaptive_wait_is_zero_before_the_first_measurement() -> None:
    batching = BatchingConfig(max_wait_ms=1000, adaptive_wait=True)
    assert taken(filled(build(batching), 40)) == [("idle", [0])]
    assert taken(filled(build(batching, CostModel()), 40, 40)) == [("idle", [0, 1])]
