"""Changing a load while it runs: at once, on time, stated in the result, and as the seed decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from latdoctor.cli.load_control import ControlFile, adjustment_text, read_adjustment
from latdoctor.errors import DefinitionError, OperationError, UsageError
from latdoctor.load.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Population, Ramp, Replay
from latdoctor.load.distributions import ConstantValue
from latdoctor.load.live_changes import LEAD_S, Adjustment, MixShares, adjusted_arrivals, check_adjustment
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import OpenLoop, Progress
from latdoctor.load.plan import LoadPhase, LoadPlan, schedule
from latdoctor.load.process import run_load, start_load
from latdoctor.load.summary import LoadProblemCode, LoadResult, RawRun, summarise, total
from latdoctor.load.users import Users
from tests.load.tiny_server import serving
from tests.load.virtual import OneWorker, virtually

Changes = Sequence[tuple[float, Adjustment]]
PLAIN = LoadPlan((LoadPhase("first", 20, Constant(10)), LoadPhase("second", 10, Constant(20))))


def changed(plan: LoadPlan, changes: Changes, server: OneWorker | None = None) -> LoadResult:
    """The result of `plan` in virtual time with `changes` requested at their times."""
    planned = schedule(plan)

    async def play(clock: Callable[[], float]) -> LoadResult:
        run = OpenLoop(plan, planned, server or OneWorker(0.0001), clock, adjustable=True)
        for at, adjustment in changes:
            asyncio.get_running_loop().call_later(at, run.adjust, adjustment)
        await run.run()
        more = run.added, run.sessions, tuple(run.changes)
        outcomes = tuple(run.outcomes)
        return summarise(plan, planned, RawRun("", 0.0, clock(), 0.0, run.most_in_flight, run.stopped, outcomes, *more))

    return virtually(play)


def per_second(result: LoadResult) -> list[int]:
    return [row.counts.requests for row in result.series]


def test_a_rate_changes_at_its_time_and_in_later_phases() -> None:
    result = changed(PLAIN, [(9.5, Adjustment(rate=3))])
    seconds = per_second(result)
    assert seconds[:10] == [10] * 10
    assert seconds[10:20] == [30] * 10
    assert seconds[20:] == [60] * 10
    assert result.generator.late_max == pytest.approx(0.0, abs=0.001)
    assert [change.at for change in result.changes] == pytest.approx([9.5 + LEAD_S])


def test_a_result_with_changes_says_so_and_has_each_load_apart() -> None:
    result = changed(PLAIN, [(4.5, Adjustment(rate=2)), (9.5, Adjustment())])
    assert [(one.name, one.start, one.whole.counts.requests) for one in result.stretches] == [
        ("first", 0.0, 50),
        ("first", pytest.approx(5.0), 100),
        ("first", pytest.approx(10.0), 100),
        ("second", 20.0, 200),
    ]
    assert total(one.whole.counts for one in result.stretches) == result.total.counts
    assert [problem.code for problem in result.problems] == [LoadProblemCode.CHANGED]
    assert "changed 2 times" in result.problems[0].text


def test_without_a_change_nothing_differs() -> None:
    assert changed(PLAIN, []).problems == ()
    assert (changed(PLAIN, []).changes, changed(PLAIN, []).stretches) == ((), ())
    assert changed(PLAIN, []).schedule == changed(PLAIN, [(3, Adjustment(rate=2))]).schedule


def test_the_same_changes_give_the_same_load() -> None:
    plan = LoadPlan((LoadPhase("only", 20, Poisson(20)),), seed=5)
    changes = [(3.0, Adjustment(rate=2)), (8.0, Adjustment(rate=0.5))]
    assert changed(plan, changes) == changed(plan, changes)
    assert per_second(changed(plan, changes))[:3] == per_second(changed(plan, []))[:3]


def test_a_mix_changes_for_requests_and_for_users() -> None:
    short = Mix(long_share=0)
    users = Users(turns=ConstantValue(20), think_s=ConstantValue(1))
    phases = (LoadPhase("plain", 10, Constant(20), short), LoadPhase("users", 10, Constant(2), short, users))
    result = changed(LoadPlan(phases), [(4.5, Adjustment(mix=MixShares(long_share=1)))])
    first, rest = result.stretches[0], result.stretches[1:]
    assert all(kind.startswith("short") for kind in first.kinds)
    assert all(kind.startswith("long") for one in rest for kind in one.kinds)


def test_a_population_grows_and_shrinks() -> None:
    users = Users(turns=ConstantValue(1000), think_s=ConstantValue(1))
    plan = LoadPlan((LoadPhase("only", 30, Population(10), users=users),))
    result = changed(plan, [(9.5, Adjustment(users=25)), (19.5, Adjustment(users=4))])
    seconds = per_second(result)
    assert (seconds[5], seconds[15], seconds[25]) == (10, 25, 4)
    assert result.sessions is not None
    assert result.sessions.arrived == 25
    assert changed(plan, [(4.5, Adjustment(users=3)), (9.5, Adjustment())]).series[20].counts.requests == 10


def test_arriving_users_follow_the_rate() -> None:
    plan = LoadPlan((LoadPhase("only", 20, Constant(5), users=Users()),))
    assert per_second(changed(plan, [(9.5, Adjustment(rate=2))])) == [5] * 10 + [10] * 10


def test_a_schedule_that_ran_out_can_go_on() -> None:
    plan = LoadPlan((LoadPhase("only", 20, OnOff(10, 1, 99, off_rate=0.01)),))
    asked = 3.0
    assert max(request.at for request in schedule(plan)) < asked
    result = changed(plan, [(asked, Adjustment(rate=100))])
    assert sum(per_second(result)[3:]) > 5


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (Constant(2), Constant(4)),
        (Poisson(2), Poisson(4)),
        (Gamma(2, 3), Gamma(4, 3)),
        (OnOff(2, 1, 1, 1), OnOff(4, 1, 1, 2)),
        (Ramp(1, 2), Ramp(2, 4)),
        (Population(5), Population(9)),
        (Replay((1.0,)), Replay((1.0,))),
    ],
    ids=repr,
)
def test_every_process_has_its_changed_form(arrivals: Arrivals, expected: Arrivals) -> None:
    assert adjusted_arrivals(arrivals, Adjustment(rate=2, users=9)) == expected


@pytest.mark.parametrize(
    ("phase", "adjustment", "message"),
    [
        (LoadPhase("a", 1, Constant(1)), Adjustment(users=3), "no phase of the plan has a population"),
        (LoadPhase("a", 1, Replay((0.0,))), Adjustment(rate=2), "times of its recording"),
        (LoadPhase("a", 1, Population(3), users=Users()), Adjustment(rate=2), "populations only"),
        (LoadPhase("a", 1000, Constant(400)), Adjustment(rate=2), "more than 500000 requests"),
    ],
)
def test_what_a_plan_cannot_follow_is_refused(phase: LoadPhase, adjustment: Adjustment, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_adjustment(LoadPlan((phase,)), adjustment)


def test_a_change_reaches_the_process_and_its_result() -> None:
    plan = LoadPlan((LoadPhase("only", 2.5, Constant(20)),))
    shown: list[Progress] = []
    with serving() as server, start_load(plan, server.address, report_s=0.1, adjustable=True) as process:
        with pytest.raises(UsageError, match="has not started"):
            process.adjust(Adjustment(rate=4))
        process.wait_started()
        process.adjust(Adjustment(rate=4))
        result = process.wait(shown.append)
    (change,) = result.changes
    assert change.adjustment == Adjustment(rate=4)
    assert 0.4 < change.at < 2.5
    assert result.total.counts.requests == pytest.approx(20 * change.at + 80 * (2.5 - change.at), abs=3)
    assert shown[-1].rate == 4


def test_a_load_that_was_not_started_as_adjustable_is_not_changed() -> None:
    plan = LoadPlan((LoadPhase("only", 0.2, Constant(20)),))
    with serving() as server, start_load(plan, server.address) as process:
        process.wait_started()
        with pytest.raises(UsageError, match="not started as adjustable"):
            process.adjust(Adjustment(rate=4))


@pytest.mark.parametrize(
    ("text", "adjustment"),
    [
        ("", Adjustment()),
        ("# rate: 3\n\n", Adjustment()),
        ("rate: 1.5", Adjustment(rate=1.5)),
        ("users: 40\nmix: {long_share: 0.4}", Adjustment(users=40, mix=MixShares(long_share=0.4))),
    ],
)
def test_a_control_file_states_the_whole_deviation(text: str, adjustment: Adjustment) -> None:
    assert read_adjustment(text.encode(), "control.yaml") == adjustment


@pytest.mark.parametrize("text", ["rate: 0", "rate: fast", "speed: 2", "mix: {long: 1}", "- 1", "users: 1.5", "{"])
def test_a_wrong_control_file_is_an_error(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"control\.yaml"):
        read_adjustment(text.encode(), "control.yaml")


def test_a_control_file_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "control.yaml"
    passed: list[Adjustment] = []

    def adjust(adjustment: Adjustment) -> None:
        if adjustment.users is not None:
            raise OperationError("no population")
        passed.append(adjustment)

    control = ControlFile(file, adjust)
    for text in (None, "", "rate: 2", "rate: 2 # the same", "rate: x", "rate: x", "users: 3", "mix: {audio_share: 0}"):
        if text is not None:
            file.write_text(text)
        control.follow()
    assert passed == [Adjustment(rate=2), Adjustment(mix=MixShares(audio_share=0))]
    printed = capsys.readouterr().err
    assert printed.count("the load goes on as before") == 2
    assert "load changed: rate ×2" in printed
    assert adjustment_text(Adjustment()) == "as planned"


def test_an_unchanged_run_needs_no_control() -> None:
    plan = LoadPlan((LoadPhase("only", 0.3, Constant(20)),))
    with serving() as server:
        assert run_load(plan, server.address).changes == ()
