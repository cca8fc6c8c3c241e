"""Properties of every scheduler, for any arrivals, disconnects and calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.config import BatchingConfig
from latdoctor.lab.server.schedulers import build
from latdoctor.lab.server.schedulers.base import count_cap
from latdoctor.lab.server.schedulers.batch import Batch, Scheduler, Work
from latdoctor.lab.server.schedulers.cost_model import Cost, CostModel
from tests.lab.schedulers.samples import BATCHINGS, LENGTHS, batch

REASONS = {"full", "tokens", "waste", "idle", "age", "timeout", "alone", "arrival", "seconds", "bucket"}
ADD = st.tuples(st.just("add"), LENGTHS, st.sampled_from([0.0, 0.004, 0.2]))  # the last: how late it is added
DROP = st.tuples(st.just("drop"), st.integers(0, 30), st.just(0.0))
PASS = st.tuples(st.just("pass"), st.integers(0, 400), st.just(0.0))  # milliseconds
TAKE = st.tuples(st.just("take"), st.just(0), st.just(0.0))
STEPS = st.lists(st.one_of(ADD, ADD, ADD, DROP, PASS, TAKE), max_size=60)


def learnt() -> CostModel:
    """A model of calls that are dear by themselves, so that an adaptive wait does happen."""
    model = CostModel()
    for size in (1, 2, 4):
        model.observe(batch(*[20] * size), 0.05 + 0.0001 * size)
    return model


class Run:
    """Applies steps to a scheduler and records where each request is."""

    def __init__(self, batching: BatchingConfig, scheduler: Scheduler, *, lanes: bool) -> None:
        self.batching, self.scheduler, self.lanes = batching, scheduler, lanes
        self.now = 0.0
        self.order: list[Work] = []  # as added
        self.waiting: dict[int, Work] = {}
        self.ended: set[int] = set()

    def apply(self, step: tuple[str, int, float]) -> None:
        match step:
            case "add", tokens, lag:
                work = Work(len(self.order), tokens, max(0.0, self.now - lag))
                self.order.append(work)
                self.waiting[work.id] = work
                self.scheduler.add(work)
            case "drop", id_, _:
                self.scheduler.drop(frozenset({id_}))
                if id_ < len(self.order) and self.waiting.pop(id_, None):
                    self.ended.add(id_)
            case "pass", milliseconds, _:
                self.now += milliseconds / 1000
            case _:
                self.take()
        assert {work.id for work in self.scheduler.pending} == set(self.waiting)
        assert len(self.scheduler.pending) == len(self.waiting)

    def take(self) -> Batch | None:
        wake = self.scheduler.wake_at(self.now)
        oldest = min(self.waiting.values(), key=lambda work: (work.arrived, work.id), default=None)
        assert wake is None or wake >= self.now
        if oldest is None:
            assert wake is None
        elif self.batching.scheduler != "no-timer":
            assert wake is not None
            assert wake <= max(self.now, oldest.arrived + self.batching.max_wait_ms / 1000)
        found = self.scheduler.take(self.now)
        assert (found is not None) == (wake == self.now), "it gives a batch exactly when it said it would"
        if found is not None:
            assert oldest is not None
            self.leave(found)
            aged = self.now - oldest.arrived > self.batching.age_ms / 1000
            assert self.lanes or not aged or oldest in found.works
        return found

    def leave(self, found: Batch) -> None:
        ids = [work.id for work in found.works]
        assert found.reason in REASONS
        assert ids
        assert len(set(ids)) == len(ids)
        for id_ in ids:
            del self.waiting[id_]  # KeyError: it was taken twice, or after its client had gone
            self.ended.add(id_)
        check_caps(self.batching, found)
        for work in found.works:
            same = [other for other in self.waiting.values() if other.tokens == work.tokens]
            assert all((work.arrived, work.id) < (other.arrived, other.id) for other in same)
        if found.reason == "idle" and not self.lanes:
            assert not self.waiting


def check_caps(batching: BatchingConfig, found: Batch) -> None:
    longest = max(work.tokens for work in found.works)
    lengths = [work.tokens for work in found.works]
    if batching.scheduler == "no-timer":
        assert found.size <= batching.max_batch_requests
    else:
        assert found.size <= count_cap(batching, longest)
    if found.size == 1:
        return  # the first is always accepted
    match batching.scheduler:
        case "single":
            raise AssertionError("a batch of more than one")
        case "token-budget":
            assert found.padded_tokens <= batching.max_batch_tokens
            assert 1 - found.tokens / found.padded_tokens <= batching.max_waste
            assert lengths == sorted(lengths)
        case "duration-bounded":
            assert sum(work.seconds for work in found.works) <= batching.total_seconds + 1e-9
            assert lengths == sorted(lengths)
        case "length-buckets":
            assert found.padded_tokens <= batching.max_batch_tokens
            assert not any(min(lengths) <= bound < longest for bound in batching.buckets)
        case "long-alone":
            assert all(work.seconds <= batching.long_seconds for work in found.works)


def drain(run: Run) -> None:
    """Asks at each time named until nothing waits; what never leaves by itself is the last of no-timer."""
    while run.waiting:
        wake = run.scheduler.wake_at(run.now)
        if wake is None:
            assert run.batching.scheduler == "no-timer"
            return
        run.now = max(run.now, wake)
        assert run.take() is not None


@given(BATCHINGS, STEPS, st.booleans())
def test_the_laws_of_a_scheduler(batching: BatchingConfig, steps: list[tuple[str, int, float]], knows: bool) -> None:
    run = Run(batching, build(batching, learnt() if knows else None), lanes=False)
    for step in steps:
        run.apply(step)
    drain(run)
    assert run.ended | set(run.waiting) == set(range(len(run.order)))


@given(BATCHINGS, STEPS)
def test_the_laws_hold_with_lanes(batching: BatchingConfig, steps: list[tuple[str, int, float]]) -> None:
    run = Run(batching, build(batching, lane_boundary=100), lanes=True)
    for step in steps:
        run.apply(step)
    drain(run)
    assert run.ended | set(run.waiting) == set(range(len(run.order)))


@given(BATCHINGS, BATCHINGS, STEPS, STEPS, st.booleans())
def test_nothing_is_lost_when_the_rule_changes_while_requests_wait(
    before: BatchingConfig,
    after: BatchingConfig,
    first: list[tuple[str, int, float]],
    then: list[tuple[str, int, float]],
    lanes: bool,
) -> None:
    run = Run(before, build(before), lanes=False)
    for step in first:
        run.apply(step)
    run.batching, run.lanes = after, lanes
    new = build(after, lane_boundary=100 if lanes else None)
    for work in run.scheduler.pending:
        new.add(work)
    run.scheduler = new
    for step in then:
        run.apply(step)
    drain(run)
    assert run.ended | set(run.waiting) == set(range(len(run.order)))


class Taught(CostModel):
    """Has learnt all there is to learn."""

    def __init__(self, cost: Cost) -> None:
        super().__init__()
        self._taught = cost

    @property
    def cost(self) -> Cost:
        return self._taught


@given(
    st.lists(LENGTHS, min_size=1, max_size=30),
    st.builds(
        Cost,
        fixed=st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]),
        per_token=st.sampled_from([0.0, 1e-6, 1e-4]),
        per_token_pair=st.sampled_from([0.0, 1e-8, 1e-7]),
    ),
)
def test_padding_never_costs_more_than_the_calls_it_saves(lengths: list[int], cost: Cost) -> None:
    scheduler = build(BatchingConfig(max_batch_tokens=1 << 20, max_waste=1.0), Taught(cost))
    for number, tokens in enumerate(lengths):
        scheduler.add(Work(number, tokens, 0.0))
    while (found := scheduler.take(0.0)) is not None:
        alone = sum(cost.seconds(1, work.tokens) for work in found.works)
        together = cost.seconds(found.size, found.padded_tokens // found.size)
        assert together <= alone * (1 + 1e-9)
