"""The peers: what each scores, that nothing but the numbers decides, and that a crash is a failure and no silence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from latdoctor.evaluation.baselines import methods
from latdoctor.evaluation.baselines.methods import (
    BASELINES,
    BaselineMethod,
    MetricScores,
    ranked,
    scored,
    target,
)

Values = NDArray[np.float64]
Signals = Mapping[str, tuple[Values, Values]]
BY_NAME = {peer.name: peer for peer in BASELINES}
SCORING = ("n-sigma", "max-abs-z", "baro", "ranked-correlation")


def numbers(*values: float) -> Values:
    return np.array(values, dtype=np.float64)


def world(**more: tuple[Values, Values]) -> Signals:
    """Half a minute before, half a minute of an incident: latency doubles, one metric rises, one falls, one stays."""
    chance = np.random.default_rng(7)

    def around(level: float, noise: float) -> Values:
        return level + noise * chance.standard_normal(30)

    return {
        "latency.p99 model/a": (around(0.1, 0.005), around(0.2, 0.01)),
        "queue.depth server/a": (around(2, 0.2), around(9, 0.5)),
        "gpu.sm_clock gpu/0": (around(1.9e9, 1e7), around(0.9e9, 1e7)),
        "host.psi.cpu_some node/a": (around(0.05, 0.01), around(0.05, 0.01)),
        **more,
    }


def best(name: str, signals: Signals, seed: int = 1) -> str:
    return scored(BY_NAME[name], signals, seed).signals[0][0]


def of(name: str, signals: Signals, seed: int = 1) -> dict[str, float]:
    found = scored(BY_NAME[name], signals, seed)
    assert not found.failed, found.failed
    return dict(found.signals)


def test_the_known_peers_are_there() -> None:
    assert [peer.name for peer in BASELINES] == ["random", *SCORING]


@pytest.mark.parametrize("name", SCORING)
def test_latency_itself_is_never_named(name: str) -> None:
    assert "latency.p99" not in of(name, world())


@pytest.mark.parametrize("name", ["n-sigma", "baro"])
def test_rises_are_found_and_drops_are_not_as_published(name: str) -> None:
    found = of(name, world())
    assert max(found, key=lambda signal: found[signal]) == "queue.depth"
    assert found["gpu.sm_clock"] < found["host.psi.cpu_some"]


def test_max_z_finds_drops_too() -> None:
    found = of("max-abs-z", world())
    assert {"gpu.sm_clock", "queue.depth"} == set(sorted(found, key=lambda signal: -found[signal])[:2])


def test_correlation_finds_what_moves_with_latency_either_way() -> None:
    found = of("ranked-correlation", world())
    assert found["host.psi.cpu_some"] < 0.5 < min(found["queue.depth"], found["gpu.sm_clock"])


def test_formulas() -> None:
    before, incident = numbers(1, 2, 3, 4, 5), numbers(3, 3, 9)
    signals = {"queue.depth a": (before, incident)}
    assert of("n-sigma", signals)["queue.depth"] == pytest.approx((9 - 3) / np.std(before))
    assert of("baro", signals)["queue.depth"] == pytest.approx((9 - 3) / (4 - 2))
    falling = {"queue.depth a": (before, numbers(3, 3, -9))}
    assert of("n-sigma", falling)["queue.depth"] == pytest.approx(0)
    assert of("max-abs-z", falling)["queue.depth"] == pytest.approx((9 + 3) / np.std(before))


def test_spearman_of_ranks_with_ties() -> None:
    latency = (numbers(1, 2, 3, 4), numbers(5, 6, 7, 8))
    other = (numbers(1, 1, 2, 2), numbers(5, 5, 6, 6))
    found = of("ranked-correlation", {"latency.p99 a": latency, "queue.depth a": other})
    # By hand: ranks 0.5 0.5 2.5 2.5 4.5 4.5 6.5 6.5 against 0 … 7.
    assert found["queue.depth"] == pytest.approx(0.9759, abs=1e-4)


def test_what_stood_still_counts_by_how_far_it_moved_and_not_by_its_unit() -> None:
    flat = numbers(*[0.0] * 5)
    small = of("baro", {"a x": (flat, numbers(0, 3, 4)), "b x": (flat, numbers(0, 3e9, 4e9))})
    assert small["a"] == small["b"] == pytest.approx(1000)
    assert of("baro", {"a x": (flat, flat)})["a"] == 0


def test_of_several_subjects_the_highest_counts() -> None:
    one, other = (numbers(1, 2, 3), numbers(2, 2, 2)), (numbers(1, 2, 3), numbers(8, 8, 8))
    assert of("baro", {"a x": one, "a y": other})["a"] == of("baro", {"a y": other})["a"]


def test_the_latency_of_the_clients_is_the_target_where_it_is_known() -> None:
    known, unknown = numbers(*[1.0] * 6), numbers(*[math.nan] * 6)
    both = {"latency.p99 a": (known, known), "client.latency.p99 c": (known, known)}
    assert target(both) == "client.latency.p99 c"
    assert target({**both, "client.latency.p99 c": (unknown, unknown)}) == "latency.p99 a"
    assert target({"queue.depth a": (known, known)}) is None


def test_without_a_latency_correlation_has_failed() -> None:
    found = scored(BY_NAME["ranked-correlation"], {"queue.depth a": (numbers(1, 2, 3), numbers(1, 2, 3))}, 1)
    assert found == MetricScores("ranked-correlation", failed="OperationError: no latency to correlate with")


def test_a_crash_is_a_failure_that_says_why() -> None:
    def crashing(signals: Signals, chance: np.random.Generator) -> dict[str, float]:
        raise ZeroDivisionError("of its own \x1b[31m making")

    found = scored(BaselineMethod("p", "P", "crashes", crashing), world(), 1)
    assert (found.signals, found.failed) == ((), "ZeroDivisionError: of its own  making")
    assert scored(BaselineMethod("p", "P", "says nothing", lambda signals, chance: {}), world(), 1).failed


def test_a_score_that_is_no_number_does_not_count() -> None:
    assert ranked("p", {"a x": math.nan, "a y": 1.0, "b x": math.inf, "c x": math.nan}).signals == (
        ("b", math.inf),
        ("a", 1.0),
    )


def test_the_seed_decides_among_equals_and_the_names_do_not() -> None:
    flat = numbers(*[1.0] * 6)
    equal = {f"signal{number} a": (flat, flat) for number in range(8)}
    first = {best("baro", equal, seed) for seed in range(40)}
    assert len(first) > 3
    assert best("baro", equal, 5) == best("baro", equal, 5)


def test_random_is_random_and_repeatable() -> None:
    assert scored(BY_NAME["random"], world(), 3) == scored(BY_NAME["random"], world(), 3)
    assert {best("random", world(), seed) for seed in range(30)} == {"queue.depth", "gpu.sm_clock", "host.psi.cpu_some"}


ANY = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1.0, -1.0, 1e-300]))
COLUMN = st.integers(0, 12).flatmap(lambda n: st.lists(ANY, min_size=n, max_size=n)).map(lambda xs: numbers(*xs))
NAMES = st.sampled_from(
    ["latency.p99 a", "client.latency.mean c", "queue.depth a", "queue.depth b", "gpu.power gpu/0", ""]
)


@st.composite
def any_signals(draw: st.DrawFn) -> Signals:
    """Arrays of any numbers, each side of one length, as `signals` of a recording gives them."""
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    before, incident = draw(st.integers(0, 12)), draw(st.integers(0, 12))

    def side(length: int) -> Values:
        return numbers(*draw(st.lists(ANY, min_size=length, max_size=length)))

    return {name: (side(before), side(incident)) for name in names}


@pytest.mark.parametrize("name", BY_NAME)
@given(signals=any_signals(), seed=st.integers(0, 2**32))
def test_any_numbers_give_scores_or_a_reason(name: str, signals: Signals, seed: int) -> None:
    found = scored(BY_NAME[name], signals, seed)
    assert bool(found.signals) != bool(found.failed)
    assert not found.failed or found.failed.startswith(("no metric", "OperationError: no latency"))
    assert all(math.isfinite(score) for _, score in found.signals)
    assert [score for _, score in found.signals] == sorted((score for _, score in found.signals), reverse=True)


@pytest.mark.parametrize("name", SCORING)
@given(signals=any_signals(), seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)))
def test_the_order_of_columns_decides_no_score(name: str, signals: Signals, seeds: tuple[int, int]) -> None:
    first, second = (scored(BY_NAME[name], signals, seed) for seed in seeds)
    assert dict(first.signals) == dict(second.signals)


@pytest.mark.parametrize("name", ["n-sigma", "max-abs-z", "baro"])
@given(power=st.integers(-60, 60))
def test_a_unit_changes_no_score(name: str, power: int) -> None:
    scaled = {key: (before * 2.0**power, during * 2.0**power) for key, (before, during) in world().items()}
    assert of(name, scaled) == of(name, world())


@given(st.lists(st.integers(-50, 50), min_size=16, max_size=16))
def test_correlation_knows_ranks_only(values: list[int]) -> None:
    plain, bent = numbers(*values), np.exp(numbers(*values) / 10)
    latency = (numbers(*range(8)), numbers(*range(8, 16)))
    pair = [
        of("ranked-correlation", {"latency.p99 a": latency, "queue.depth a": (v[:8], v[8:])}) for v in (plain, bent)
    ]
    assert pair[0] == pytest.approx(pair[1])
    assert 0 <= pair[0]["queue.depth"] <= 1 + 1e-12


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=20), st.lists(st.integers(-50, 50), min_size=3, max_size=20))
def test_max_z_scores_at_least_n_sigma_and_is_symmetric(before: list[int], during: list[int]) -> None:
    chance = np.random.default_rng(0)
    signals = {"a x": (numbers(*before), numbers(*during))}
    mirrored = {"a x": (-numbers(*before), -numbers(*during))}
    (two,), (one,) = (tuple(score(signals, chance).values()) for score in (methods.max_z, methods.n_sigma))
    assert two >= abs(one) - 1e-9 or two >= one
    assert tuple(methods.max_z(mirrored, chance).values()) == pytest.approx((two,))
