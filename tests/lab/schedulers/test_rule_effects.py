"""The known effects of each rule, as directions, in virtual time: 15 % long requests on the reference model's costs."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from bench.schedulers import SimulationResult, quantile, simulate, traffic

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.batch import Batch, Work
from latdoctor.lab.server.schedulers.cost_model import CostModel
from tests.lab.schedulers.samples import seconds

# At most five, and all of the long class (300 tokens and more) alone.
LONG_ALONE = BatchingConfig(scheduler="long-alone", max_batch_requests=5, long_seconds=11.9)
RULES = {
    "long-alone": LONG_ALONE,
    "count-only": BatchingConfig(scheduler="count-only", max_batch_requests=5),
    "count-only 32": BatchingConfig(scheduler="count-only"),
    "duration-bounded": BatchingConfig(scheduler="duration-bounded"),
    "length-buckets": BatchingConfig(scheduler="length-buckets"),
    "single": BatchingConfig(scheduler="single"),
    "no-timer": BatchingConfig(scheduler="no-timer"),
    "token-budget": BatchingConfig(),
    "token-budget waiting": BatchingConfig(max_wait_ms=20),
    "token-budget adaptive": BatchingConfig(max_wait_ms=20, adaptive_wait=True),
}


@cache
def simulated(rule: str, rate: float = 0, *, lanes: bool = False, long_share: float = 0.15) -> SimulationResult:
    """`rate` 0: a thousand requests wait at the start."""
    scheduler = build(RULES[rule], lane_boundary=200 if lanes else None)
    return simulate(scheduler, traffic(rate, 3000 if rate else 1000, long_share, seed=0), seconds)


def p99(outcome: SimulationResult, longest: int | None = None) -> float:
    return quantile(outcome.latencies(longest), 0.99)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"no-timer"}))
@pytest.mark.parametrize("lanes", [False, True])
def test_everything_that_came_is_answered_once(rule: str, lanes: bool) -> None:
    outcome = simulated(rule, 60, lanes=lanes)
    assert outcome.left == ()
    assert Counter(work.id for call in outcome.calls for work in call.batch.works) == Counter(range(3000))


def test_token_budget_needs_fewer_calls_and_pads_nothing() -> None:
    budget, alone, count = simulated("token-budget"), simulated("long-alone"), simulated("count-only")
    assert len(budget.calls) < 0.5 * len(alone.calls)
    assert budget.waste < 0.03
    assert 0.05 < alone.waste < 0.2
    assert count.waste > 0.5
    assert budget.rate > 1.1 * alone.rate
    assert budget.rate > 2 * count.rate


def test_token_budget_evens_the_tokens_and_not_the_count() -> None:
    budget, alone = simulated("token-budget"), simulated("long-alone")
    mean, deviation = budget.spread(lambda batch: batch.padded_tokens)
    mean_alone, deviation_alone = alone.spread(lambda batch: batch.padded_tokens)
    assert deviation / mean < 0.2 < deviation_alone / mean_alone
    assert budget.spread(lambda batch: batch.size)[1] > alone.spread(lambda batch: batch.size)[1]


def test_under_long_alone_the_mode_at_one_holds_the_long_ones() -> None:
    calls = [call.batch for call in simulated("long-alone").calls]
    sizes = Counter(batch.size for batch in calls)
    assert {1, 5} == {size for size, _ in sizes.most_common(2)}, "two peaks, at one and at the bound"
    assert sizes[3] < sizes[1] / 2
    assert sizes[3] < sizes[5] / 2
    ones = [batch for batch in calls if batch.size == 1]
    assert sum(batch.reason == "alone" for batch in ones) > 0.7 * len(ones)
    assert all(batch.size == 1 for batch in calls if batch.padded_tokens >= 300 and batch.reason == "alone")
    assert all(work.tokens < 300 for batch in calls if batch.size > 1 for work in batch.works)


def test_a_larger_count_pads_more() -> None:
    assert simulated("count-only 32").waste > simulated("count-only").waste
    assert simulated("count-only 32").rate < simulated("count-only").rate


def test_count_only_collapses_when_the_mix_turns_long() -> None:
    few = simulate(build(RULES["count-only"]), traffic(60, 3000, 0.02, seed=0), seconds)
    assert p99(simulated("count-only", 60)) > 10 * p99(few)
    assert p99(simulated("token-budget", 60)) < 0.1 * p99(simulated("count-only", 60))


def test_where_short_ones_overtake_the_waste_cap_matters_more_than_the_token_budget() -> None:
    def worst(tokens: int, waste: float) -> float:
        batching = BatchingConfig(max_batch_tokens=tokens, max_waste=waste, age_ms=250)
        return p99(simulate(build(batching), traffic(100, 3000, 0.15, seed=0), seconds))

    assert worst(1024, 0.3) < worst(1024, 1)
    assert worst(8192, 0.3) / worst(1024, 0.3) < worst(8192, 1) / worst(8192, 0.3)


def test_a_learnt_cost_lets_a_busy_server_pad_only_where_it_pays() -> None:
    def at_100(model: CostModel | None) -> SimulationResult:
        return simulate(build(BatchingConfig(), model), traffic(100, 3000, 0.15, seed=0), seconds, model)

    untaught, taught = at_100(None), at_100(CostModel())
    assert taught.waste < 0.7 * untaught.waste
    assert p99(taught) < p99(untaught)


def test_the_oldest_first_has_the_better_tail_and_a_higher_age_favours_short_ones() -> None:
    def at_100(age_ms: float) -> SimulationResult:
        return simulate(build(BatchingConfig(age_ms=age_ms), CostModel()), traffic(100, 3000, 0.15, seed=0), seconds)

    oldest_first, overtaking = at_100(0), at_100(250)
    assert p99(oldest_first) < p99(overtaking)
    assert p99(overtaking, longest=60) < p99(oldest_first, longest=60)


def test_buckets_pad_more_than_a_window_and_less_than_count() -> None:
    assert simulated("token-budget").waste < simulated("length-buckets").waste < simulated("count-only").waste


def test_the_field_s_bound_beats_running_long_ones_alone_at_saturation() -> None:
    assert simulated("duration-bounded").rate > simulated("long-alone").rate
    assert len(simulated("duration-bounded").calls) < len(simulated("long-alone").calls)


def test_no_batching_computes_one_at_a_time_and_pads_nothing() -> None:
    outcome = simulated("single")
    assert (len(outcome.calls), outcome.waste) == (1000, 0)


def test_lanes_protect_short_requests_at_the_price_of_long_ones() -> None:
    one, two = simulated("token-budget", 140), simulated("token-budget", 140, lanes=True)
    assert p99(two, longest=60) < 0.5 * p99(one, longest=60)
    assert p99(two) > p99(one)


def test_waiting_for_company_costs_the_median_at_a_low_rate() -> None:
    at_once, waiting = simulated("token-budget", 20), simulated("token-budget waiting", 20)
    assert quantile(waiting.latencies(), 0.5) > quantile(at_once.latencies(), 0.5) + 0.01
    timeouts = [call for call in waiting.calls if call.batch.reason == "timeout"]
    assert len(timeouts) > 0.5 * len(waiting.calls)
    assert not any(call.batch.reason == "timeout" for call in at_once.calls)


def test_an_adaptive_wait_does_not_wait_where_a_call_costs_little_by_itself() -> None:
    assert list(simulated("token-budget adaptive", 20).latencies()) == list(simulated("token-budget", 20).latencies())


def test_without_a_timer_the_last_of_a_lull_waits_for_the_next_arrival() -> None:
    last, next_one = Work(1, 40, 0.1), Work(2, 40, 30.0)
    outcome = simulate(build(RULES["no-timer"]), [Work(0, 40, 0.0), last, next_one], seconds)
    assert [(call.started, call.batch.works[0].id, call.batch.reason) for call in outcome.calls] == [
        (0.1, 0, "arrival"),
        (30.0, 1, "arrival"),
    ]
    assert outcome.left == (next_one,)


def test_without_a_timer_the_latency_follows_the_gap_between_arrivals() -> None:
    for gap in (0.2, 2.0):
        outcome = simulate(build(RULES["no-timer"]), [Work(i, 40, i * gap) for i in range(50)], seconds)
        assert quantile(outcome.latencies(), 0.5) == pytest.approx(gap, abs=0.01)


@pytest.mark.parametrize("scheduler", ["token-budget", "length-buckets", "duration-bounded"])
def test_a_request_over_the_budget_is_computed_alone(scheduler: str) -> None:
    batching = BatchingConfig(scheduler=scheduler, max_batch_tokens=256, total_seconds=10)  # type: ignore[arg-type] # a name
    works = [Work(0, 40, 0.0), Work(1, 512, 0.0), Work(2, 44, 0.0), Work(3, 600, 0.0)]
    calls = simulate(build(batching), works, seconds).calls
    assert [[work.id for work in call.batch.works] for call in calls] == [[0, 2], [1], [3]]


def test_no_request_starves_under_short_requests() -> None:
    long = Work(0, 512, 0.0)
    stream = [Work(1 + i, 40, i * 0.002) for i in range(3000)]  # more than the worker can compute

    def wait(age_ms: float) -> float:
        calls = simulate(build(BatchingConfig(age_ms=age_ms)), [long, *stream], seconds).calls
        return next(call.started for call in calls if long in call.batch.works)

    # A first batch takes short ones; the guard brings the long one in as soon as the worker is free after its age.
    assert 0.25 < wait(250) < 0.25 + seconds(Batch(tuple(stream[:32]), "full"))
    assert wait(600_000) > 5
