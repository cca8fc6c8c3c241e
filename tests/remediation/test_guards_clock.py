"""Guards while the clock of the machine is set, and after a boot: neither opens nor closes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pytest
from msgspec import UNSET

from latdoctor.remediation.run_result import Outcome, Reason
from tests.remediation.simulated_service import Service
from tests.remediation.test_guarantees import simulated
from tests.remediation.test_run import Room, no_help

DAY = 86_400.0
SETTINGS = {"set back by a day": -DAY, "not set": 0.0, "set ahead by a day": DAY, "set ahead by a year": 365 * DAY}


@pytest.fixture
def room() -> Iterator[Room]:
    with simulated() as made:
        no_help(made.service)
        yield made


def codes(room: Room, *names: str) -> list[Reason | None]:
    return [room.run(name).code for name in names]


@pytest.mark.parametrize("name", SETTINGS)
def test_cooldown_lasts_as_long_whatever_the_wall_clock_says(room: Room, name: str) -> None:
    room.run()
    room.service.clock_set = SETTINGS[name]
    room.service.now += 590
    refused = room.run()
    assert (refused.code, refused.next_step) == (Reason.COOLDOWN, "wait 10 s")
    room.service.now += 20
    assert room.run().outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize("name", SETTINGS)
def test_attempts_are_counted_in_their_window_whatever_the_wall_clock_says(room: Room, name: str) -> None:
    for _ in range(2):
        assert room.run().outcome is Outcome.ROLLED_BACK
        room.service.now += 700
    room.service.clock_set = SETTINGS[name]
    assert room.run().code is Reason.ATTEMPTS
    room.service.now += DAY - 1400
    assert room.run().outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize("name", SETTINGS)
def test_circuit_breaker_is_reset_by_the_order_of_the_journal(room: Room, name: str) -> None:
    def fails() -> Reason | None:
        room.service.now += 2 * DAY
        return room.run().code

    assert [fails() for _ in range(4)] == [Reason.NO_IMPROVEMENT] * 3 + [Reason.CIRCUIT_BREAKER]
    room.service.clock_set = SETTINGS[name]
    assert fails() is Reason.CIRCUIT_BREAKER
    room.journal.append("", "breaker.reset", {})
    room.service.clock_set = 0.0
    assert [fails() for _ in range(4)] == [Reason.NO_IMPROVEMENT] * 3 + [Reason.CIRCUIT_BREAKER]


@pytest.mark.parametrize("name", SETTINGS)
def test_age_of_a_plan_is_that_of_the_monotonic_clock(room: Room, name: str) -> None:
    plan = room.plan()
    room.service.clock_set = SETTINGS[name]
    room.service.now += 3590
    assert room.execute(plan).outcome is Outcome.ROLLED_BACK
    room.service.now += 2 * DAY
    late = room.plan()
    room.service.now += 3610
    assert room.execute(late).code is Reason.PLAN_OUTDATED


@dataclass(frozen=True)
class AfterBoot:
    """Another boot, whose monotonic clock begins anew: the wall clock is all there is."""

    passes: float  # seconds by the wall clock
    cools: bool


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(AfterBoot(590, cools=True), id="too early"),
        pytest.param(AfterBoot(610, cools=False), id="late enough"),
        pytest.param(AfterBoot(-DAY, cools=True), id="set back: the end of the run is in the future and counts as now"),
    ],
)
def test_cooldown_after_a_boot(room: Room, case: AfterBoot) -> None:
    room.run()
    boot(room.service, case.passes)
    assert (room.run().code is Reason.COOLDOWN) is case.cools


def test_cooldown_of_a_run_in_the_future_ends(room: Room) -> None:
    """The clock was wrong when it ended: what is certain is that it ended before this boot."""
    room.run()
    boot(room.service, -365 * DAY)
    room.service.now += 590
    assert room.run().code is Reason.COOLDOWN
    room.service.now += 20
    assert room.run().outcome is Outcome.ROLLED_BACK


def boot(service: Service, passes: float) -> None:
    service.clock_set += service.now + passes
    service.now, service.boot = 0.0, "another boot"


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (lambda service: boot(service, 60.0), False),
        (lambda service: boot(service, 3700.0), True),
        (lambda service: boot(service, -30.0), False),
        (
            lambda service: boot(service, -DAY),
            True,
        ),  # its age is not known, and a new one takes a second
    ],
)
def test_plan_of_another_boot(room: Room, spoil: Callable[[Service], None], refused: bool) -> None:
    plan = room.plan()
    spoil(room.service)
    assert (room.execute(plan).code is Reason.PLAN_OUTDATED) is refused


def test_plan_of_version_0_1_has_the_wall_clock_alone(room: Room) -> None:
    plan = msgspec.structs.replace(room.plan(), moment=UNSET)
    assert b"moment" not in msgspec.json.encode(plan)
    room.service.clock_set = -DAY
    assert room.execute(plan).code is Reason.PLAN_OUTDATED
    room.service.clock_set = 0.0
    assert room.execute(plan).outcome is Outcome.ROLLED_BACK


def test_order_of_runs_is_that_of_the_journal(room: Room) -> None:
    """The second run on the same field is the later one, though its time is earlier."""
    room.service.p99 = Service().p99
    first = room.run()
    room.service.edit(scheduler="long-alone")
    room.service.now += 2 * DAY
    room.service.clock_set = -5 * DAY
    second = room.run()
    assert second.outcome is Outcome.VERIFIED, second
    assert room.rolled_back(first.run).code is Reason.NEWER_RUN
