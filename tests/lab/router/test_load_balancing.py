"""Properties of the load balancing policies."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.load_balancing import LEAST_SHARE, Candidate, Policy, build, slow_start_weight, sticky_replica


def candidates(*weights: float, ready_for: float = 1e9) -> list[Candidate]:
    return [Candidate(f"r{number}", weight, 0, ready_for) for number, weight in enumerate(weights)]


@pytest.mark.parametrize("policy", Policy)
def test_no_replica_is_chosen_from_an_empty_pool(policy: str) -> None:
    assert build(Policy(policy), 0).choose([]) is None


@given(count=st.integers(1, 8), rounds=st.integers(1, 5))
def test_round_robin_sends_each_replica_the_same_number(count: int, rounds: int) -> None:
    balancer = build(Policy("round-robin"), 0)
    among = candidates(*range(count))  # weights do not count
    for _ in range(rounds):
        assert sorted(str(balancer.choose(among)) for _ in range(count)) == [f"r{number}" for number in range(count)]


@given(weights=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_by_weight_each_gets_exactly_its_share_in_every_cycle(weights: list[int]) -> None:
    balancer = build(Policy("weighted"), 0)
    among = candidates(*weights)
    for _ in range(3):
        chosen = Counter(balancer.choose(among) for _ in range(sum(weights)))
        assert [chosen[one.name] for one in among] == weights


def test_by_weight_the_heavy_one_is_spread_and_not_bunched() -> None:
    balancer = build(Policy("weighted"), 0)
    among = candidates(5, 1, 1)
    assert [balancer.choose(among) for _ in range(7)] == ["r0", "r0", "r1", "r0", "r2", "r0", "r0"]


@given(loads=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 10)), min_size=1, max_size=8), asked=st.integers(1, 5))
def test_the_least_loaded_for_its_weight_is_chosen(loads: list[tuple[int, float]], asked: int) -> None:
    balancer = build(Policy("least-loaded"), 0)
    among = [Candidate(f"r{n}", weight, in_flight, 1e9) for n, (in_flight, weight) in enumerate(loads)]
    able = {one.name: (one.in_flight + 1) / one.weight for one in among if one.weight > 0}
    for _ in range(asked):
        chosen = balancer.choose(among)
        assert (chosen is None) if not able else able[str(chosen)] == min(able.values())


@given(in_flight=st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_with_equal_weights_the_chosen_has_the_fewest_in_flight(in_flight: list[int]) -> None:
    among = [Candidate(f"r{n}", 1, load, 1e9) for n, load in enumerate(in_flight)]
    chosen = build(Policy("least-loaded"), 0).choose(among)
    assert next(one.in_flight for one in among if one.name == chosen) == min(in_flight)


@given(
    loads=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1.0, 4.0])), min_size=1, max_size=8),
    asked=st.integers(1, 20),
)
def test_of_two_the_less_loaded_is_chosen_so_never_the_most_loaded(loads: list[tuple[int, float]], asked: int) -> None:
    balancer = build(Policy("power-of-two"), 0)
    among = [Candidate(f"r{n}", weight, in_flight, 1e9) for n, (in_flight, weight) in enumerate(loads)]
    able = {one.name: (one.in_flight + 1) / one.weight for one in among if one.weight > 0}
    worst = [name for name, load in able.items() if load == max(able.values())]
    for _ in range(asked):
        chosen = balancer.choose(among)
        assert (chosen is None) == (not able)
        assert chosen is None or chosen in able
        assert len(able) < 2 or len(worst) > 1 or chosen not in worst


def test_with_two_choices_equal_replicas_get_about_the_same() -> None:
    balancer, in_flight = build(Policy("power-of-two"), 0), Counter[str]()
    for _ in range(4000):  # nothing ends: the fullest is at most a few above the mean (Mitzenmacher 2001)
        chosen = balancer.choose([Candidate(f"r{n}", 1, in_flight[f"r{n}"], 1e9) for n in range(8)])
        in_flight[str(chosen)] += 1
    assert max(in_flight.values()) - min(in_flight.values()) <= 6


def test_equally_loaded_ones_are_asked_in_turn() -> None:
    balancer = build(Policy("least-loaded"), 0)
    chosen = Counter(balancer.choose(candidates(1, 1, 1)) for _ in range(9))
    assert set(chosen.values()) == {3}


@given(weight=st.floats(0, 100), times=st.lists(st.floats(0, 100), min_size=2, max_size=6), slow=st.floats(0, 60))
def test_the_weight_of_a_cold_one_only_rises_to_its_full_value(weight: float, times: list[float], slow: float) -> None:
    found = [slow_start_weight(weight, moment, slow) for moment in sorted(times)]
    assert found == sorted(found)
    assert all(LEAST_SHARE * weight <= one <= weight for one in found)
    assert slow_start_weight(weight, slow, slow) == weight


@pytest.mark.parametrize("policy", ["round-robin", "weighted"])
@pytest.mark.parametrize(("ready_for", "share"), [(0, 1 / 11), (5, 1 / 3), (10, 1 / 2), (1000, 1 / 2)])
def test_a_cold_replica_is_eased_in(policy: str, ready_for: float, share: float) -> None:
    balancer = build(Policy(policy), 10)
    among = [Candidate("warm", 1, 0, 1e9), Candidate("cold", 1, 0, ready_for)]
    chosen = Counter(balancer.choose(among) for _ in range(660))
    assert chosen["cold"] == pytest.approx(660 * share, abs=1)


def test_a_cold_replica_is_held_to_fewer_in_flight() -> None:
    balancer = build(Policy("least-loaded"), 10)
    cold = Candidate("cold", 1, 1, 2)  # a fifth of its weight: two in flight of it are as ten of another
    assert balancer.choose([cold, Candidate("warm", 1, 8, 1e9)]) == "warm"
    assert balancer.choose([cold, Candidate("warm", 1, 10, 1e9)]) == "cold"


def test_a_returning_replica_is_not_flooded() -> None:
    balancer = build(Policy("round-robin"), 0)
    both = candidates(1, 1)
    for _ in range(101):
        balancer.choose(both[:1])
    assert Counter(balancer.choose(both) for _ in range(10)) == {"r0": 5, "r1": 5}


@given(weights=st.lists(st.integers(0, 9), max_size=6), session=st.text(max_size=20))
def test_a_session_has_one_home_whatever_the_order_and_the_load(weights: list[int], session: str) -> None:
    among = candidates(*weights)
    found = sticky_replica(session, among)
    busy = [Candidate(one.name, one.weight, 50, 0.0) for one in reversed(among)]
    assert sticky_replica(session, busy) == found
    assert (found is None) == (not any(weights))
    assert found is None or weights[int(found[1:])] > 0


@given(weights=st.lists(st.integers(1, 9), min_size=2, max_size=6), session=st.text(max_size=20))
def test_where_one_goes_only_its_own_sessions_move(weights: list[int], session: str) -> None:
    among = candidates(*weights)
    found = sticky_replica(session, among)
    for gone in among:
        after = sticky_replica(session, [one for one in among if one is not gone])
        assert (after == found) == (gone.name != found)


def test_sessions_spread_by_weight() -> None:
    homes = Counter(sticky_replica(f"s-{number}", candidates(3, 1)) for number in range(4000))
    assert homes["r0"] / 4000 == pytest.approx(0.75, abs=0.03)  # over four standard deviations
