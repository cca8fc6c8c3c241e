"""All generators together send the plan: nothing is missing, and nothing twice."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Population, Ramp, Replay
from latdoctor.load.distributions import Exponential, Geometric
from latdoctor.load.drivers.share import Share, expected_requests, highest_rate, shared_schedule, shared_users
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan, PlannedRequest, schedule
from latdoctor.load.user_sessions import arrivals_of
from latdoctor.load.users import Users

PROCESSES: list[Arrivals] = [
    Constant(40),
    Poisson(40),
    Gamma(40, 3),
    OnOff(90, 0.5, 0.5, 10),
    Ramp(10, 80),
    Replay((0.0, 0.5, 0.6, 3.1)),
]


def plan(arrivals: Arrivals, seconds: float = 4.0) -> LoadPlan:
    mix = Mix(sessions=5, malformed_share=0.1)
    return LoadPlan((LoadPhase("first", seconds, arrivals, mix), LoadPhase("second", 2.0, Poisson(20), mix)), seed=3)


def union(load: LoadPlan, generators: int, times: float) -> list[PlannedRequest]:
    shares = [shared_schedule(load, Share(index, generators, times)) for index in range(generators)]
    return sorted(itertools.chain.from_iterable(shares), key=lambda request: (request.at, request.index))


@pytest.mark.parametrize("arrivals", PROCESSES, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("generators", [1, 2, 3, 7])
def test_all_shares_together_are_the_schedule_of_lab_load(arrivals: Arrivals, generators: int) -> None:
    load = plan(arrivals)
    assert sorted(union(load, generators, 1.0), key=lambda request: request.index) == list(schedule(load))


@settings(max_examples=40, deadline=None)
@given(
    rate=st.floats(0.5, 50), seconds=st.floats(1, 5), generators=st.integers(1, 9), times=st.sampled_from([0.5, 3.0, 8])
)
def test_multiplied_even_arrivals_stay_even(rate: float, seconds: float, generators: int, times: float) -> None:
    if rate * times * seconds / generators < 2:
        return  # a generator without requests is refused
    load = LoadPlan((LoadPhase("only", seconds, Constant(rate)),))
    found = union(load, generators, times)
    assert [request.at for request in found] == pytest.approx([n / (rate * times) for n in range(len(found))])
    assert len(found) == pytest.approx(rate * times * seconds, abs=1)
    assert len({request.index for request in found}) == len(found)


@pytest.mark.parametrize("arrivals", PROCESSES[1:5], ids=lambda one: type(one).__name__)
def test_multiplied_processes_have_the_multiplied_number_of_requests(arrivals: Arrivals) -> None:
    load = plan(arrivals, 20.0)
    found = union(load, 4, 3.0)
    expected = expected_requests(load, 3.0)
    spread = (
        3.0 if isinstance(arrivals, Gamma) else 1.0
    )  # the standard deviation of its counts is about cv times as wide
    assert len(found) == pytest.approx(expected, abs=5 * spread * expected**0.5)
    assert len({request.index for request in found}) == len(found)
    assert all(request.phase == (request.at >= 20.0) for request in found)


def test_the_sum_of_many_poisson_generators_is_poisson() -> None:
    load = LoadPlan((LoadPhase("only", 60.0, Poisson(20)),), seed=1)
    times = [request.at for request in union(load, 10, 5.0)]
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(1, abs=0.06)


def test_generators_of_a_multiplied_load_have_times_of_their_own() -> None:
    load = plan(Poisson(40))
    first, second = (shared_schedule(load, Share(index, 2, 2.0)) for index in (0, 1))
    assert {request.at for request in first}.isdisjoint(request.at for request in second)


USERS = Users(turns=Geometric(3), think_s=Exponential(0.5))
PHASES = (
    LoadPhase("first", 4.0, Poisson(9), users=USERS),
    LoadPhase("second", 2.0, Poisson(20)),
    LoadPhase("third", 3.0, Population(11, 2.0), users=USERS),
)


@pytest.mark.parametrize("generators", [1, 2, 3, 7])
def test_all_users_together_are_those_of_lab_load(generators: int) -> None:
    load = LoadPlan(PHASES, seed=3)
    shares = [shared_users(load, Share(index, generators)) for index in range(generators)]
    found = sorted(itertools.chain.from_iterable(shares), key=lambda user: user.name)
    assert found == sorted([*arrivals_of(load, 0), *arrivals_of(load, 2)], key=lambda user: user.name)
    assert all([user.at for user in share] == sorted(user.at for user in share) for share in shares)


@pytest.mark.parametrize(("generators", "times", "size"), [(1, 3.0, 33), (4, 3.0, 33), (7, 0.5, 6), (40, 1.5, 16)])
def test_a_multiplied_population_has_whole_users(generators: int, times: float, size: int) -> None:
    load = LoadPlan(PHASES[2:], seed=3)
    shares = [shared_users(load, Share(index, generators, times)) for index in range(generators)]
    assert sum(map(len, shares)) == size
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_recorded_times_are_not_multiplied() -> None:
    with pytest.raises(UsageError, match="first: recorded arrivals"):
        shared_schedule(plan(PROCESSES[5]), Share(0, 2, 2.0))


def test_a_share_beyond_the_last_is_refused() -> None:
    with pytest.raises(ValueError, match="generator 2 of 2"):
        Share(2, 2)


@pytest.mark.parametrize(
    ("arrivals", "rate"), [*zip(PROCESSES, [40, 40, 40, 90, 80, 3], strict=True)], ids=lambda one: type(one).__name__
)
def test_the_highest_rate_of_a_phase(arrivals: Arrivals, rate: float) -> None:
    assert highest_rate(plan(arrivals).phases[0]) == rate


def test_another_seed_is_another_load() -> None:
    load = plan(Poisson(40))
    assert shared_schedule(load, Share(0, 2, 2.0)) != shared_schedule(replace(load, seed=4), Share(0, 2, 2.0))
