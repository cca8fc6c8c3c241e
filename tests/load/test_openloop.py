"""The run, in virtual time: nothing is hidden, everything is counted, and it all adds up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.load.arrivals import Constant, Poisson
from latdoctor.load.latencies import quantile
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import OpenLoop, Saturation
from latdoctor.load.outcome import Ending, Reply, RequestOutcome, ending_of, retry_delay
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy, digest, schedule
from latdoctor.load.saturation import saturation
from latdoctor.load.summary import RawRun, RequestCounts, merge, series_csv, summarise, total
from tests.load.virtual import OneWorker, Scripted, StallsHere, played, virtually


def plan_of(rate: float, seconds: float, **others: object) -> LoadPlan:
    return LoadPlan((LoadPhase("only", seconds, Constant(rate)),), **others)  # type: ignore[arg-type]


def test_a_frozen_server_shows_in_an_open_loop_and_hides_in_a_closed_one() -> None:
    """10 ms a request, 50 a second for 20 s, frozen for 3 s: fifteen in a hundred requests met the freeze."""
    result = played(plan_of(50, 20), OneWorker(0.01, (5.0, 8.0)))
    assert result.total.p50 == pytest.approx(0.01, rel=0.01)
    assert result.total.p99 == pytest.approx(2.85, rel=0.05)
    assert result.total.counts.good < 0.9 * result.total.counts.requests

    async def closed(clock: Callable[[], float]) -> list[float]:
        server = OneWorker(0.01, (5.0, 8.0))
        took: list[float] = []
        while clock() < 20:
            begin = clock()
            await server.send(b"", "", 0)
            took.append(clock() - begin)
        return sorted(took)

    hidden = quantile(virtually(closed), 0.99)
    assert hidden == pytest.approx(0.01, rel=0.01)


def test_a_stall_of_the_generator_is_in_the_latencies_and_spoils_the_run() -> None:
    result = played(plan_of(10, 10), StallsHere(2.0))
    assert result.generator.late_max == pytest.approx(1.9)
    assert result.total.longest == pytest.approx(2.0, rel=1e-3)
    assert sum(row.counts.requests for row in result.series if (row.p50 or 0) > 0.4) == 20
    assert len(result.problems) == 1


def test_series_shows_the_seconds_of_a_frozen_server() -> None:
    result = played(plan_of(50, 12), OneWorker(0.01, (5.0, 8.0)))
    # Whoever comes at t waits 3 − (t − 5)/2 s: the server works the backlog off at twice the rate of arrivals.
    slow = [row.second for row in result.series if (row.p99 or 0) > 1.2]
    assert slow == [5, 6, 7, 8]


def test_what_is_never_answered_counts_with_its_timeout() -> None:
    result = played(plan_of(10, 2, timeout_s=1.5), Scripted("never"))
    assert (result.total.counts.timed_out, result.total.counts.requests) == (20, 20)
    assert result.total.p50 == pytest.approx(1.5, rel=1e-3)
    assert result.total.statuses == {"timeout": 20}
    assert result.total.goodput == 0


def test_what_was_not_sent_is_counted_counts_with_the_timeout_and_spoils_the_run() -> None:
    result = played(plan_of(10, 2, timeout_s=5, max_in_flight=4), Scripted("never"))
    assert (result.total.counts.timed_out, result.total.counts.not_sent) == (4, 16)
    assert result.total.p50 == pytest.approx(5, rel=1e-3)
    assert result.generator.most_in_flight == 4
    assert ["16 requests were not sent" in problem.text for problem in result.problems] == [True]


def test_refused_and_failed_requests_do_not_flatter_the_latencies() -> None:
    for status, ending in [("429", "refused"), ("503", "refused"), ("500", "failed"), ("reset", "failed")]:
        result = played(plan_of(10, 2), Scripted(status))
        assert getattr(result.total.counts, ending) == 20
        assert result.total.p99 is None


def test_wrong_requests_are_rejected_and_never_good() -> None:
    phase = LoadPhase("only", 2, Constant(50), Mix(malformed_share=1))
    result = played(LoadPlan((phase,)), Scripted("422"))
    assert (result.total.counts.rejected, result.total.counts.good) == (100, 0)
    assert played(LoadPlan((phase,)), Scripted("200")).total.counts.good == 0


@pytest.mark.parametrize(
    ("policy", "statuses", "attempts", "answered"),
    [
        (RetryPolicy(), ("503", "200"), 1, False),
        (RetryPolicy(RetryKind.IMMEDIATE), ("503", "200"), 2, True),
        (RetryPolicy(RetryKind.IMMEDIATE), ("503", "reset", "200"), 3, True),
        (RetryPolicy(RetryKind.IMMEDIATE, attempts=2), ("503", "503", "200"), 2, False),
        (RetryPolicy(RetryKind.IMMEDIATE), ("never", "200"), 2, True),
        (RetryPolicy(RetryKind.IMMEDIATE), ("422", "200"), 1, False),
        (RetryPolicy(RetryKind.BACKOFF), ("429", "200"), 2, True),
    ],
)
def test_retries_follow_the_policy_are_counted_and_marked(
    policy: RetryPolicy, statuses: tuple[str, ...], attempts: int, answered: bool
) -> None:
    server = Scripted(*statuses)
    counts = played(plan_of(10, 1, retry=policy, timeout_s=1), server).total.counts
    assert (counts.requests, counts.attempts, counts.retries) == (10, 10 * attempts, 10 * (attempts - 1))
    assert counts.answered == (10 if answered else 0)
    assert sorted(server.seen, key=lambda seen: (seen[1], seen[2])) == sorted(server.seen, key=lambda s: (s[1], s[0]))
    assert sorted({attempt for _, _, attempt in server.seen}) == list(range(attempts))
    assert len({request for _, request, _ in server.seen}) == 10


def test_a_retried_request_took_the_whole_time() -> None:
    policy = RetryPolicy(RetryKind.BACKOFF, base_ms=50)
    result = played(plan_of(10, 1, retry=policy), Scripted("503", "200", retry_after=3.0))
    assert result.total.p50 == pytest.approx(3.02, rel=0.01)


def test_backoff_is_the_same_again_and_grows_to_its_bound() -> None:
    plan = plan_of(20, 1, retry=RetryPolicy(RetryKind.BACKOFF, attempts=5))
    first, again = Scripted("503"), Scripted("503")
    played(plan, first)
    played(plan, again)
    assert first.seen == again.seen
    policy, reply = RetryPolicy(RetryKind.BACKOFF, attempts=9, base_ms=100, max_ms=400), Reply("503")
    assert [retry_delay(policy, made, reply, 0.5) for made in (1, 2, 3, 4)] == [0.05, 0.1, 0.2, 0.2]
    assert retry_delay(policy, 1, Reply("429", retry_after=2.0), 0.5) == 2.0


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("200", "answered"),
        ("429", "refused"),
        ("503", "refused"),
        ("413", "rejected"),
        ("302", "failed"),
        ("500", "failed"),
        ("timeout", "timed_out"),
        ("no-connection", "failed"),
        ("bad-answer", "failed"),
    ],
)
def test_endings(status: str, ending: str) -> None:
    assert ending_of(status) == ending


def test_warm_up_is_sent_but_not_measured() -> None:
    server = OneWorker(0.01)
    result = played(plan_of(10, 5, warm_up_s=2), server)
    assert (result.warm_up_requests, result.total.counts.requests, len(server.seen)) == (20, 30, 50)
    assert result.total.offered == pytest.approx(10)
    assert [row.counts.requests for row in result.series] == [0, 0, 10, 10, 10]


def test_goodput_counts_what_came_within_the_slo() -> None:
    result = played(plan_of(50, 10, slo_s=0.505), OneWorker(0.01, (4.0, 6.0)))
    # Whoever comes at t ≥ 4 takes 2.01 − (t − 4)/2 s: over the SLO up to t = 7, one request each 20 ms.
    assert result.total.counts.good == 500 - 151
    assert result.total.goodput == 34.9
    assert [row.second for row in result.series if row.counts.good < row.counts.requests] == [4, 5, 6, 7]


ENDINGS = tuple(Ending)


@settings(max_examples=25)
@given(data=st.data(), rate=st.integers(1, 30))
def test_seconds_phases_and_kinds_sum_to_the_totals(data: st.DataObject, rate: int) -> None:
    phases = (LoadPhase("a", 3.5, Poisson(rate), Mix(malformed_share=0.2)), LoadPhase("b", 2, Constant(rate)))
    plan = LoadPlan(phases, warm_up_s=data.draw(st.sampled_from([0.0, 1.0, 2.5])))
    planned = schedule(plan)
    outcomes = []
    for request in planned:
        ending = data.draw(st.sampled_from(ENDINGS))
        statuses = () if ending == "not_sent" else ("503",) * data.draw(st.integers(0, 2)) + ("200",)
        took = data.draw(st.floats(0, 20))
        outcomes.append(RequestOutcome(request.index, took, 0.0, ending, statuses))  # type: ignore[arg-type]
    result = summarise(plan, planned, RawRun("", 0.0, 6.0, 0.0, 1, False, tuple(outcomes)))
    whole = result.total.counts
    assert whole == total(row.counts for row in result.series)
    assert whole == total(phase.whole.counts for phase in result.phases)
    assert whole == total(kind.counts for kind in result.kinds.values())
    assert whole.requests == sum(getattr(whole, ending) for ending in ENDINGS)
    assert whole.requests + result.warm_up_requests == len(planned)
    assert sum(result.total.statuses.values()) == whole.attempts
    again = merge([kind for phase in result.phases for kind in phase.kinds.values()])
    assert (again.p50, again.p99, again.histogram) == (result.total.p50, result.total.p99, result.total.histogram)
    assert len(series_csv(result).splitlines()) == 1 + len(result.series) == 7


LATE = 0.03


@pytest.mark.parametrize(
    ("late", "took", "spoiled"),
    [(0.0, 0.05, False), (LATE, 0.05, True), (LATE, 3.0, False), (0.009, 0.01, False)],
    ids=["on time", "late", "late, but the server is slower by far", "within what is allowed"],
)
def test_a_late_generator_spoils_the_run(late: float, took: float, spoiled: bool) -> None:
    plan = plan_of(10, 10)
    planned = schedule(plan)
    outcomes = tuple(RequestOutcome(request.index, took, late, Ending.ANSWERED, ("200",)) for request in planned)
    result = summarise(plan, planned, RawRun("", 0.0, 10.0, 0.5, 1, False, outcomes))
    assert (result.generator.late_p50, result.generator.late_p99) == (late, late)
    assert ["only: the generator was" in problem.text for problem in result.problems] == [True] * spoiled


def test_a_busy_or_a_stopped_generator_spoils_the_run() -> None:
    plan = plan_of(10, 10)
    planned = schedule(plan)
    outcomes = tuple(RequestOutcome(request.index, 0.01, 0.0, Ending.ANSWERED, ("200",)) for request in planned[:40])
    result = summarise(plan, planned, RawRun("", 0.0, 4.0, 3.9, 1, True, outcomes))
    assert tuple(problem.text for problem in result.problems) == (
        "stopped after 4.0 s of 10.0 s",
        "the generator used 98% of a core: it could not keep up",
    )
    assert result.total.offered == 10


def test_a_stop_is_heard_and_what_is_in_flight_is_waited_for() -> None:
    plan = plan_of(1, 1000)
    planned = schedule(plan)

    async def stopped(clock: Callable[[], float]) -> OpenLoop:
        run = OpenLoop(plan, planned, OneWorker(0.4), clock)
        asyncio.get_running_loop().call_later(3.1, run.stop)
        await run.run()
        assert clock() < 3.5
        return run

    run = virtually(stopped)
    assert [outcome.ending for outcome in run.outcomes] == ["answered"] * 4


def test_progress_reports_current_latencies() -> None:
    plan = plan_of(10, 10)
    planned = schedule(plan)

    async def watched(clock: Callable[[], float]) -> list[tuple[int, int, float, float | None]]:
        run = OpenLoop(plan, planned, OneWorker(0.01, (4.0, 7.0)), clock)
        running = asyncio.create_task(run.run())
        seen: list[tuple[int, int, float, float | None]] = []
        for _ in range(9):
            await asyncio.sleep(1.0)
            told = run.progress()
            seen.append((round(told.elapsed), told.in_flight, round(told.oldest, 1), told.p99 and round(told.p99, 1)))
        await running
        return seen

    seen = virtually(watched)
    assert seen[2] == (3, 0, 0.0, 0.0)
    assert seen[5][1] > 15  # frozen: nothing ends, many wait, and the oldest says for how long
    assert seen[5][2:] == (2.0, None)
    assert seen[7][3] == 3.0


def test_saturation_finds_the_capacity_whatever_is_offered() -> None:
    async def measured(clock: Callable[[], float]) -> Saturation:
        return await saturation(plan_of(1, 1), Mix(), OneWorker(0.02), clock, 4.0, 32)

    found = virtually(measured)
    assert found.rate == pytest.approx(50, rel=0.02)
    assert found.seconds == pytest.approx(3)


def test_deeper_loops_send_texts_that_a_cache_of_prompts_has_not_seen() -> None:
    sent: list[str] = []
    texts = Mix(audio_share=0)

    class Kept(OneWorker):
        async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
            sent.append(msgspec.json.decode(content)["text"])
            return await super().send(content, request_id, attempt)

    for depth in (1, 2, 4, 64):
        virtually(lambda clock, depth=depth: saturation(plan_of(1, 1), texts, Kept(0.02), clock, 1.0, depth))
    assert len(sent) > 150
    assert len({text[:60] for text in sent}) > 0.95 * len(sent)


def test_saturating_a_server_that_refuses_ends_and_says_so() -> None:
    async def measured(clock: Callable[[], float]) -> Saturation:
        return await saturation(plan_of(1, 1, timeout_s=1), Mix(), Scripted("429", takes=0.0), clock, 2.0, 8)

    found = virtually(measured)
    assert (found.rate, found.answered) == (0, 0)
    assert found.other > 100


def test_results_survive_the_pipe_and_schedules_have_digests() -> None:
    result = played(plan_of(10, 2), OneWorker(0.01))
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result
    assert result.schedule == digest(schedule(result.plan))
    assert result.phase("only").whole.counts == result.total.counts
    with pytest.raises(KeyError):
        result.phase("other")
    assert total([]) == RequestCounts()
