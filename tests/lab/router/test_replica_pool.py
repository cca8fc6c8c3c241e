"""How the replicas stand."""

from __future__ import annotations

import asyncio

import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server.load_balancing import RouterConfig
from latdoctor.lab.server.replica_pool import ReplicaPool

URLS = {"a": "http://127.0.0.1:1/", "b": "http://127.0.0.1:2"}


class Time:
    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def test_only_ready_ones_are_chosen() -> None:
    fleet = ReplicaPool(URLS, RouterConfig(slow_start_ms=0))
    assert fleet.choose() is None
    fleet.ready("a")
    assert [fleet.choose(), fleet.choose(but=frozenset({"a"}))] == [fleet.known("a"), None]
    for turn in (fleet.unready, fleet.drain, fleet.lost):
        turn("a")
        assert fleet.choose() is None


def test_replicas_come_and_go_and_those_that_stay_keep_what_is_in_flight() -> None:
    fleet = ReplicaPool({}, RouterConfig(slow_start_ms=0), dynamic=True)
    assert fleet.choose() is None
    fleet.replace_ready(URLS)
    stays, goes = fleet.known("a"), fleet.known("b")
    with fleet.in_flight(stays), fleet.in_flight(goes):
        fleet.replace_ready({"a": "http://127.0.0.1:1/", "c": "http://127.0.0.1:3"})
        assert {one.name: one.in_flight for one in fleet.statuses()} == {"a": 1, "c": 0}
        assert fleet.choose() is fleet.known("c")
    assert (stays.in_flight, goes.in_flight) == (0, 0)
    fleet.replace_ready({})
    assert fleet.choose() is None


def test_what_is_in_flight_is_counted_whatever_happens() -> None:
    fleet = ReplicaPool(URLS)
    fleet.ready("a")
    replica = fleet.known("a")
    with pytest.raises(ZeroDivisionError), fleet.in_flight(replica), fleet.in_flight(replica):  # noqa: PT012
        assert fleet.statuses()[0].in_flight == 2
        _ = 1 / 0
    assert fleet.statuses()[0].in_flight == 0


def test_easing_in_begins_anew_after_an_absence_and_only_then() -> None:
    time = Time()
    fleet = ReplicaPool(URLS, RouterConfig(policy="weighted", weights={"a": 4}, slow_start_ms=10_000), now=time)
    fleet.ready("a")
    time.seconds += 5
    fleet.ready("a")  # every probe says so
    assert (fleet.statuses()[0].weight, fleet.statuses()[0].eased_weight) == (4, 2)
    fleet.lost("a")
    assert fleet.statuses()[0].eased_weight == 0
    fleet.started("a", 17)
    time.seconds += 60
    fleet.ready("a")
    assert fleet.statuses()[0].eased_weight == pytest.approx(0.4)


def test_a_drained_one_stays_so_and_is_no_loss() -> None:
    fleet = ReplicaPool(URLS)
    fleet.ready("a")
    fleet.drain("a")
    fleet.ready("a")
    assert fleet.known("a").state == "draining"
    fleet.lost("a")
    assert fleet.known("a").losses == 0
    fleet.started("a", 18)
    fleet.lost("a")
    assert fleet.known("a").losses == 1


def test_a_configuration_counts_from_the_next_request() -> None:
    fleet = ReplicaPool(URLS, RouterConfig(policy="weighted", slow_start_ms=0))
    fleet.ready("a")
    fleet.ready("b")
    fleet.configure(RouterConfig(policy="weighted", weights={"a": 0}, slow_start_ms=0))
    assert {one.name for _ in range(10) if (one := fleet.choose())} == {"b"}


@pytest.mark.parametrize(
    "wrong",
    [
        RouterConfig(policy="best"),  # type: ignore[arg-type]  # wrong on purpose
        RouterConfig(weights={"a": -1}),
        RouterConfig(weights={"a": float("nan")}),
        RouterConfig(weights={"z": 1}),
        RouterConfig(weights=dict.fromkeys(URLS, 0.0)),
        RouterConfig(slow_start_ms=-1),
        RouterConfig(timeout_ms=0),
    ],
    ids=str,
)
def test_a_bad_configuration_is_refused_and_the_old_one_stays(wrong: RouterConfig) -> None:
    fleet = ReplicaPool(URLS)
    before = fleet.config
    with pytest.raises(UsageError):
        fleet.configure(wrong)
    assert fleet.config is before
    with pytest.raises(UsageError):
        ReplicaPool(URLS, wrong)


def test_waiting_for_a_state_ends_with_it_or_says_how_things_stand() -> None:
    async def test() -> None:
        fleet = ReplicaPool(URLS)
        waiting = asyncio.create_task(fleet.until(lambda all_: all_[0].state == "ready", 10))
        await asyncio.sleep(0)
        fleet.ready("a")
        await waiting
        with pytest.raises(OperationError, match="a is ready, b is starting"):
            await fleet.until(lambda all_: all_[1].state == "ready", 0.001)

    asyncio.run(test())


def test_names_are_known_or_refused() -> None:
    with pytest.raises(UsageError, match="one of a, b"):
        ReplicaPool(URLS).known("c")
    with pytest.raises(UsageError, match="at least one"):
        ReplicaPool({})


def test_a_session_stays_where_it_is_while_that_one_is_ready() -> None:
    fleet = ReplicaPool(URLS, RouterConfig(slow_start_ms=0, sticky=True))
    fleet.ready("a")
    fleet.ready("b")
    homes = {session: fleet.choose(session=session) for session in map(str, range(20))}
    assert {one.name for one in homes.values() if one} == {"a", "b"}
    fleet.unready("a")
    assert all(fleet.choose(session=session) is fleet.known("b") for session in homes)
    fleet.ready("a")
    assert {session: fleet.choose(session=session) for session in homes} == homes
    elsewhere = fleet.choose(frozenset({"a"}), next(name for name, one in homes.items() if one is fleet.known("a")))
    assert elsewhere is fleet.known("b")
    # Without the knob, or without a session, the policy chooses.
    assert [fleet.choose() for _ in range(2)] == [fleet.known("a"), fleet.known("b")]
    fleet.configure(RouterConfig(slow_start_ms=0, policy="round-robin"))
    assert [fleet.choose(session="x") for _ in range(2)] == [fleet.known("a"), fleet.known("b")]
