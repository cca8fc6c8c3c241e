"""Outlier ejection in virtual time: its laws for any sequence of answers, and the router with a replica that fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.outlier_ejection import (
    FEWEST,
    JUDGE_EVERY,
    LEAST_EXCESS,
    LONGEST_TIMES,
    EjectionReason,
    OutlierEjection,
    OutlierRule,
)
from latdoctor.lab.server.outlier_probe import OutlierProbe
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.serve_replicas import running
from tests.lab.router.cluster import TOKEN, Cluster, cluster, eventually, run
from tests.lab.router.test_router import samples

RULE = OutlierRule(failures=3, latency_ratio=3.0, seconds=5.0, share=0.5)


@dataclass
class Clock:
    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Fleet:
    """Ready replicas behind a pool in virtual time; `slow` and `failing` ones answer so."""

    names: list[str]
    config: RouterConfig
    clock: Clock = field(default_factory=Clock)
    slow: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        urls = {name: f"http://127.0.0.1:{port}" for port, name in enumerate(self.names, 1)}
        self.pool = ReplicaPool(urls, self.config, now=self.clock)
        for name in self.names:
            self.pool.ready(name)

    @property
    def out(self) -> set[str]:
        return {one.name for one in self.pool.statuses() if one.ejected is not None}

    def request(self, session: str | None = None) -> str:
        chosen = self.pool.choose(session=session)
        assert chosen is not None
        self.pool.answered(chosen.name, failed=chosen.name in self.failing, seconds=self._seconds(chosen.name))
        self.clock.seconds += 0.02
        return chosen.name

    def probe(self) -> list[str]:
        due = list(self.pool.to_probe())
        for name in due:
            self.pool.probed(name, failed=name in self.failing, seconds=self._seconds(name))
        return due

    def move(self, move: str, number: int) -> None:
        name = self.names[number % len(self.names)]
        match move:
            case "fail":
                self.failing.add(name)
            case "slow":
                self.slow.add(name)
            case "recover":
                self.failing.discard(name)
                self.slow.discard(name)
            case "wait":
                self.clock.seconds += number
            case "probe":
                self.probe()
            case "unready":
                self.pool.unready(name)
            case "ready":
                self.pool.ready(name)

    def _seconds(self, name: str) -> float:
        return 0.5 if name in self.slow else 0.02


def fleet(count: int, **knobs: object) -> Fleet:
    config = {"outlier_failures": 3, "outlier_latency_ratio": 3.0, "slow_start_ms": 0, "policy": "round-robin", **knobs}
    return Fleet([f"r{number}" for number in range(count)], RouterConfig(**config))  # type: ignore[arg-type]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["request", "fail", "recover", "slow", "wait", "probe", "unready", "ready"]), st.integers(0, 5)
    ),
    max_size=150,
)


@given(count=st.integers(1, 6), share=st.floats(0, 1), moves=MOVES, sticky=st.booleans())
def test_no_ejected_one_is_chosen_while_another_is_in_and_never_too_many_are_out(
    count: int, share: float, moves: list[tuple[str, int]], sticky: bool
) -> None:
    found = fleet(count, outlier_share=share, outlier_failures=1, sticky=sticky)
    for move, number in moves:
        if move != "request":
            found.move(move, number)
            continue
        ready = {one.name for one in found.pool.statuses() if one.state == "ready"}
        if not ready:
            assert found.pool.choose() is None
            continue
        before = found.out
        chosen = found.request(session=f"s{number}")
        assert chosen not in before or ready <= before
        if found.out - before:  # an ejection respects the share of those that were ready
            assert len(found.out & ready) <= share * len(ready) + 1e-9
            assert ready - found.out


@given(count=st.integers(2, 6), failures=st.integers(1, 9))
def test_a_failing_one_is_out_after_so_many_failures_in_a_row_and_is_tried_again(count: int, failures: int) -> None:
    found = fleet(count, outlier_failures=failures, outlier_share=1)
    found.failing.add("r0")
    chosen = [found.request() for _ in range(count * failures)]
    assert chosen.count("r0") == failures
    assert found.out == {"r0"}
    found.clock.seconds += 5.0
    assert found.probe() == ["r0"]
    assert found.out == {"r0"}  # a bad probe
    found.failing.clear()
    found.clock.seconds += 10.0
    assert found.probe() == ["r0"]
    assert found.out == set()
    assert "r0" in {found.request() for _ in range(count)}


def test_each_bad_probe_doubles_the_time_up_to_a_limit_and_a_good_spell_forgets_it() -> None:
    outliers, now, ready = OutlierEjection(RULE), 0.0, ["a", "b"]
    for _ in range(3):
        outliers.answered("a", now, failed=True, seconds=0.1, ready=ready)
    lasted = []
    for _ in range(9):
        began = now
        while not outliers.due(now):
            now += 2.5
        lasted.append(now - began)
        assert not outliers.probed("a", now, failed=True, seconds=0.1)
    assert lasted == [min(5.0 * 2**times, 5.0 * LONGEST_TIMES) for times in range(9)]
    now += 5.0 * LONGEST_TIMES
    assert outliers.probed("a", now, failed=False, seconds=0.1)
    now += 5.0 * LONGEST_TIMES + 1
    for _ in range(3):
        outliers.answered("a", now, failed=True, seconds=0.1, ready=ready)
    assert not outliers.due(now + 4.9)
    assert outliers.due(now + 5.0) == ["a"]


def test_one_much_slower_than_the_others_is_out_and_comes_back_when_it_is_as_quick() -> None:
    found = fleet(3)
    found.slow.add("r1")
    for _ in range(3 * FEWEST + int(JUDGE_EVERY / 0.02) + 3):
        found.request()
    assert found.out == {"r1"}
    status = next(one for one in found.pool.statuses() if one.name == "r1")
    assert (status.ejected, status.ejections) == (
        EjectionReason.LATENCY,
        {EjectionReason.FAILURES: 0, EjectionReason.LATENCY: 1},
    )
    assert status.eased_weight == 0
    found.clock.seconds += 5.0
    for _ in range(40):
        found.request()
    assert found.probe() == ["r1"]
    assert found.out == {"r1"}  # answered, but still slow
    found.slow.clear()
    found.clock.seconds += 10.0
    found.probe()
    assert found.out == set()


@given(quick=st.floats(0.001, 1.0), ratio=st.floats(0.1, 2.9))
def test_one_that_is_not_so_much_slower_stays(quick: float, ratio: float) -> None:
    outliers = OutlierEjection(RULE)
    for step in range(60):
        for name, seconds in (("a", quick), ("b", quick), ("c", quick * ratio)):
            outliers.answered(name, step * 0.1, failed=False, seconds=seconds, ready=["a", "b", "c"])
    assert not any(outliers.reason(name) for name in "abc")


def test_little_is_no_outlier_however_many_times() -> None:
    outliers = OutlierEjection(RULE)
    for step in range(60):
        for name, seconds in (("a", LEAST_EXCESS / 10), ("b", LEAST_EXCESS)):
            outliers.answered(name, step * 0.1, failed=False, seconds=seconds, ready=["a", "b"])
    assert outliers.reason("b") is None


def test_a_session_moves_while_its_replica_is_out_and_returns_with_it() -> None:
    found = fleet(3, sticky=True, outlier_share=1)
    home = found.request(session="s")
    found.failing.add(home)
    for _ in range(3):
        assert found.request(session="s") == home
    away = found.request(session="s")
    assert away != home
    assert found.request(session="s") == away
    found.failing.clear()
    found.clock.seconds += 5.0
    found.probe()
    assert found.request(session="s") == home


def test_one_that_is_let_in_again_is_eased_in() -> None:
    found = fleet(2, slow_start_ms=10_000)
    found.clock.seconds += 20
    found.failing.add("r0")
    while not found.out:
        found.request()
    found.failing.clear()
    found.clock.seconds += 5
    found.probe()
    share = {one.name: one.weight_share for one in found.pool.statuses()}
    assert share["r1"] == 1
    assert share["r0"] == pytest.approx(0.1)


def test_without_the_rule_all_are_in_at_once() -> None:
    found = fleet(2)
    found.failing.add("r0")
    while not found.out:
        found.request()
    found.pool.configure(RouterConfig(slow_start_ms=0))
    assert found.out == set()


async def _set_version(found: Cluster, name: str, version: str) -> None:
    url = f"{found.fleet.known(name).url}/admin/config"
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with found.session.patch(url, json={"model": {"version": version}}, headers=headers) as answer:
        assert answer.status == 200


def test_the_router_ejects_a_failing_replica_probes_it_and_lets_it_in_again() -> None:
    config = RouterConfig(policy="round-robin", slow_start_ms=0, outlier_failures=1, outlier_ejection_ms=1)

    async def ask(found: Cluster) -> int:
        async with found.session.post("/v1/intent", data=b"{}") as answer:
            return answer.status

    async def test() -> None:
        async with cluster("a", "b", config=config) as found:
            await _set_version(found, "a", "failing")
            statuses = [await ask(found) for _ in range(6)]  # every third of `a` fails
            assert statuses.count(503) == 1
            page = samples(await found.metrics())
            assert page["ref_router_replica_ejected", "a"] == 1
            assert page["ref_router_replica_ejections_total", "failures", "a"] == 1
            assert page["ref_router_replica_up", "a"] == 1
            assert page["ref_router_replica_weight", "a"] == 0
            await _set_version(found, "a", "v1")
            async with running(OutlierProbe(found.fleet, tick=0.01).run()):
                await eventually(lambda: not any(one.ejected for one in found.fleet.statuses()))
            assert {await ask(found) for _ in range(4)} == {200}
            assert samples(await found.metrics())["ref_router_replica_ejected", "a"] == 0

    run(test)


def test_a_replica_that_does_not_answer_a_probe_stays_out() -> None:
    async def test() -> None:
        clock = Clock()
        pool = ReplicaPool(
            {"a": "http://127.0.0.1:9", "b": "http://127.0.0.1:9"},
            RouterConfig(outlier_failures=1, outlier_ejection_ms=1),
            now=clock,
        )
        for name in ("a", "b"):
            pool.ready(name)
        pool.answered("a", failed=True, seconds=0.1)
        clock.seconds += 1
        assert pool.to_probe() == ["a"]
        async with running(OutlierProbe(pool, tick=0.01).run()), aiohttp.ClientSession():
            await eventually(lambda: not pool.to_probe())
        assert [one.ejected for one in pool.statuses()] == [EjectionReason.FAILURES, None]

    run(test)
