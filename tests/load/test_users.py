"""Users as state machines, in virtual time: what they send, when they leave, and what is the same again."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latdoctor.errors import DefinitionError
from latdoctor.load import plan as plans
from latdoctor.load.arrivals import Constant, Poisson, Population, Replay
from latdoctor.load.distributions import (
    ConstantValue,
    Distribution,
    Exponential,
    Geometric,
    LogNormal,
    Quantiles,
)
from latdoctor.load.mix import Mix, draw
from latdoctor.load.openloop import OpenLoop
from latdoctor.load.outcome import Reply
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy, schedule
from latdoctor.load.session_counts import SessionCounts
from latdoctor.load.user_sessions import SessionRecord
from latdoctor.load.users import Users
from tests.load.virtual import OneWorker, Scripted, StallsHere, played, virtually

DISTRIBUTIONS: list[Distribution] = [
    ConstantValue(3),
    Exponential(4),
    LogNormal(5, 0.5),
    Geometric(4),
    Geometric(1),
    Quantiles((0.0, 2.0, 2.0, 10.0)),
]


def plan_of(users: Users, arrivals: object = None, seconds: float = 60, **others: object) -> LoadPlan:
    return LoadPlan((LoadPhase("only", seconds, arrivals or Constant(1), Mix(), users),), **others)  # type: ignore[arg-type]


def counts(plan: LoadPlan, server: OneWorker | Scripted | StallsHere) -> SessionCounts:
    found = played(plan, server).sessions
    assert found is not None
    return found


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=repr)
def test_draws_have_their_mean_and_one_random_number_each(one: Distribution) -> None:
    rng = Random(1)
    drawn = [one.draw(rng) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(one.mean, rel=0.03)
    again = Random(1)
    for _ in drawn:
        again.random()
    assert rng.random() == again.random()


def test_a_session_has_its_turns_with_time_to_think_between() -> None:
    server = OneWorker(0.5)
    users = Users(turns=ConstantValue(3), think_s=ConstantValue(2))
    result = played(plan_of(users, Replay((1.0,))), server)
    assert [time for time, _, _ in server.seen] == pytest.approx([1.0, 3.5, 6.0])
    assert result.sessions == SessionCounts(arrived=1, completed=1, turns=3)
    assert result.phases[0].sessions == result.sessions
    assert result.total.counts.requests == 3
    assert result.total.p99 == pytest.approx(0.5, rel=0.01)


def test_users_arrive_whatever_the_server_does_and_their_waiting_counts() -> None:
    """One worker, a freeze of ten seconds: users go on arriving, and a first turn waits for the whole freeze."""
    users = Users(turns=ConstantValue(2), think_s=ConstantValue(1))
    result = played(plan_of(users, Constant(5), 30, timeout_s=60), OneWorker(0.01, (10.0, 20.0)))
    assert result.sessions is not None
    assert result.sessions.arrived == 150
    assert (result.total.longest or 0) > 9.9
    slow = [row.p50 for row in result.series if row.second == 11]
    assert slow[0] is not None
    assert slow[0] > 7


def test_a_late_generator_is_part_of_the_latency_of_a_turn() -> None:
    users = Users(turns=ConstantValue(1))
    result = played(plan_of(users, Constant(10), 3), StallsHere(1.0))
    assert result.generator.late_max == pytest.approx(0.9, abs=0.02)
    assert (result.total.longest or 0) > 0.9


def test_impatient_users_hang_up_and_leave() -> None:
    users = Users(turns=ConstantValue(5), patience_s=ConstantValue(1))
    result = played(plan_of(users, Constant(1), 10), Scripted("never"))
    assert result.sessions == SessionCounts(arrived=10, abandoned_slow=10, turns=10)
    assert result.total.counts.timed_out == 10
    assert result.total.longest == pytest.approx(1.0, rel=0.01)


def test_patience_covers_all_attempts_of_a_turn() -> None:
    users = Users(turns=ConstantValue(5), patience_s=ConstantValue(1))
    retry = RetryPolicy(RetryKind.BACKOFF, attempts=20)
    server = Scripted("503", retry_after=0.4)
    result = played(plan_of(users, Replay((0.0,)), 10, retry=retry), server)
    assert [round(time, 2) for time, _, _ in server.seen] == [0.0, 0.41, 0.82]
    assert result.sessions == SessionCounts(arrived=1, abandoned_slow=1, turns=1)
    assert (result.total.counts.refused, result.total.counts.attempts) == (1, 3)


@pytest.mark.parametrize(("leave", "completed", "turns"), [(0.0, 50, 200), (1.0, 0, 50)])
def test_a_failed_turn_makes_some_leave(leave: float, completed: int, turns: int) -> None:
    users = Users(turns=ConstantValue(4), leave_after_failure=leave)
    found = counts(plan_of(users, Constant(5), 10), Scripted("500"))
    assert (found.completed, found.abandoned_failed, found.turns) == (completed, 50 - completed, turns)


def test_a_retried_turn_that_succeeds_is_no_failure() -> None:
    users = Users(turns=ConstantValue(2), leave_after_failure=1)
    retry = RetryPolicy(RetryKind.IMMEDIATE)
    result = played(plan_of(users, Constant(1), 10, retry=retry), Scripted("503", "200"))
    assert result.sessions == SessionCounts(arrived=10, completed=10, turns=20)
    assert result.total.counts.retries == 20


def test_no_turn_begins_after_the_end() -> None:
    server = OneWorker(0.01)
    found = counts(plan_of(Users(turns=ConstantValue(100), think_s=ConstantValue(1)), Replay((0.0,)), 10), server)
    assert (found.unfinished, found.turns) == (1, 10)
    assert max(time for time, _, _ in server.seen) < 10


def test_turns_belong_to_the_phase_of_their_time() -> None:
    users = Users(turns=ConstantValue(10), think_s=ConstantValue(0.99))
    calm = LoadPhase("calm", 5, Replay((0.0,)), Mix(long_share=0), users)
    rush = LoadPhase("rush", 5, Replay((0.0,)), Mix(long_share=1))
    result = played(LoadPlan((calm, rush)), OneWorker(0.01))
    assert [phase.whole.counts.requests for phase in result.phases] == [5, 6]
    assert [phase.sessions for phase in result.phases] == [SessionCounts(arrived=1, completed=1, turns=10), None]
    assert all(kind.startswith("long") for kind in result.phases[1].kinds)


def test_a_population_has_the_same_size_all_the_time() -> None:
    server = OneWorker(0.0)
    users = Users(turns=ConstantValue(2), think_s=ConstantValue(1))
    found = counts(plan_of(users, Population(20, ramp_s=1.0), 20), server)
    per_second = [sum(int(time) == second for time, _, _ in server.seen) for second in range(2, 19)]
    assert per_second == [20] * 17
    assert found.arrived == found.completed + found.unfinished
    assert found.unfinished <= 20


class Transcripts:
    """Answers at once, and keeps the bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        self.bodies.append(msgspec.json.decode(content))
        return Reply("200")


def sessions_and_bodies(plan: LoadPlan) -> tuple[tuple[SessionRecord, ...], list[dict[str, object]]]:
    server = Transcripts()

    async def play(clock: Callable[[], float]) -> OpenLoop:
        run = OpenLoop(plan, schedule(plan), server, clock)
        await run.run()
        return run

    return virtually(play).sessions, server.bodies


def test_each_user_is_a_session_that_brings_its_turns() -> None:
    users = Users(turns=ConstantValue(3), think_s=Exponential(1))
    plan = LoadPlan((LoadPhase("only", 30, Poisson(2), Mix(audio_share=0), users),))
    _, bodies = sessions_and_bodies(plan)
    by_session: dict[object, list[dict[str, object]]] = {}
    for each in bodies:
        by_session.setdefault(each["session"], []).append(each)
    complete = [turns for turns in by_session.values() if len(turns) == 3]
    assert len(complete) > 30
    for first, second, third in complete:
        assert first["transcript"] == []
        assert second["transcript"] == [first["text"]]
        assert third["transcript"] == [first["text"], second["text"]]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), turns=st.sampled_from(DISTRIBUTIONS), think=st.sampled_from(DISTRIBUTIONS))
def test_the_seed_decides_all_against_the_same_answers(seed: int, turns: Distribution, think: Distribution) -> None:
    plan = plan_of(Users(turns, think), Poisson(0.5), 20, seed=seed)
    assert sessions_and_bodies(plan) == sessions_and_bodies(plan)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    status=st.sampled_from(["200", "500", "429", "400", "never"]),
    leave=st.floats(0, 1),
    population=st.booleans(),
)
def test_endings_and_turns_add_up(seed: int, status: str, leave: float, population: bool) -> None:
    users = Users(Geometric(3), Exponential(2), LogNormal(5, 1), leave)
    arrivals = Population(5, 2.0) if population else Poisson(1)
    result = played(plan_of(users, arrivals, 30, seed=seed), Scripted(status, takes=0.5))
    found = result.sessions
    assert found is not None
    assert found.arrived == found.completed + found.abandoned + found.unfinished
    assert found.turns == result.total.counts.requests


def test_what_is_fixed_does_not_depend_on_the_answers() -> None:
    users = Users(Geometric(3), Exponential(1))
    plan = plan_of(users, Poisson(1), 60)
    fast, slow = played(plan, OneWorker(0.001)), played(plan, OneWorker(0.9))
    assert fast.schedule == slow.schedule
    assert fast.sessions is not None
    assert slow.sessions is not None
    assert fast.sessions.arrived == slow.sessions.arrived
    assert played(plan_of(users, Poisson(1), 60, seed=1), OneWorker(0.001)).schedule != fast.schedule


def test_lengths_follow_their_quantiles() -> None:
    mix = Mix(tokens=Quantiles((10.0, 20.0, 400.0)), audio_share=0)
    rng = Random(3)
    asks = [draw(mix, rng) for _ in range(2000)]
    assert sum(ask.tokens <= 20 for ask in asks) == pytest.approx(1000, rel=0.06)
    assert all((ask.kind == "long-text") == (ask.tokens >= 300) for ask in asks)


def test_a_replay_has_the_sessions_and_lengths_of_its_recording() -> None:
    arrivals = Replay((0.0, 1.0, 4.0), 2.0, sessions=(3, -1, 3), tokens=(7, 350, 0))
    planned = schedule(LoadPlan((LoadPhase("only", 10, arrivals, Mix(audio_share=0)),)))
    assert [request.at for request in planned] == [0.0, 0.5, 2.0]
    assert [request.ask.session for request in planned] == [3, None, 3]
    assert [request.ask.tokens for request in planned[:2]] == [7, 350]
    assert [request.ask.kind for request in planned[:2]] == ["short-text", "long-text"]
    assert [turn.tokens for turn in planned[2].ask.before] == [7]


def test_a_stop_ends_the_thinking() -> None:
    plan = plan_of(Users(turns=ConstantValue(5), think_s=ConstantValue(100)), Constant(1), 1000)

    async def stopped(clock: Callable[[], float]) -> OpenLoop:
        run = OpenLoop(plan, schedule(plan), OneWorker(0.01), clock)
        asyncio.get_running_loop().call_later(3.1, run.stop)
        await run.run()
        assert clock() < 3.6
        return run

    run = virtually(stopped)
    assert [record.ending for record in run.sessions] == ["unfinished"] * 4


PLAN = """
phases:
  - name: only
    seconds: 10
    arrivals: {kind: poisson, rate: 2}
    users:
      turns: {kind: geometric, mean: 4}
      think_s: {kind: lognormal, median: 8, sigma: 1.1}
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("mean: 4", "mean: 0.5", 7),
        ("sigma: 1.1", "sigma: -1", 8),
        ("think_s:", "think:", 7),
        ("{kind: geometric, mean: 4}", "{kind: quantiles, at: [2, 1]}", 7),
        ("{kind: poisson, rate: 2}", "{kind: population, size: 0}", 5),
        ("    users:", "    mix: {sessions: 3}\n    users:", 3),
    ],
)
def test_errors_of_a_users_plan_have_their_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    assert plans.read(file).phases[0].users is not None
    file.write_text(PLAN.replace(old, new))
    with pytest.raises(DefinitionError) as refused:
        plans.read(file)
    assert [problem.where for problem in refused.value.problems] == [f"{file}:{line}"]


def test_a_population_without_users_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("phases: [{name: a, seconds: 1, arrivals: {kind: population, size: 3}}]")
    with pytest.raises(DefinitionError, match="a population needs `users`"):
        plans.read(file)


def test_the_documented_plan_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "load.md").read_text()
    (example,) = (block for block in page.split("```yaml\n")[1:] if block.startswith("phases:"))
    (tmp_path / "plan.yaml").write_text(example.partition("```")[0])
    found = plans.read(tmp_path / "plan.yaml")
    assert [phase.users is not None for phase in found.phases] == [True, True]
    assert schedule(found) == ()
