"""Processes of this machine: the right one or none, all of its threads, and a way back wherever one is promised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import structs

from latdoctor.errors import UsageError
from latdoctor.http.client import Secret
from latdoctor.remediation.actions import process_scheduling
from latdoctor.remediation.actions.process import SIGNAL, STOP, Process, ProcessState
from latdoctor.remediation.actions.process_scheduling import (
    AFFINITY,
    NICE,
    ThreadSetting,
    format_cpu_list,
    lowest_permitted_nice,
    parse_cpu_list,
)
from latdoctor.remediation.change import (
    Change,
    ChangeState,
    Conflict,
    Contended,
    Deadline,
    Field,
    Refused,
    State,
    Unreachable,
    Value,
    ensure,
    state_of_change,
)
from latdoctor.remediation.target import Access, Target
from tests.lab.server.running_server import PATIENCE
from tests.remediation.actions.action_fixtures import child, started, threads


@pytest.fixture
def target() -> Iterator[Target]:
    with child() as made:
        yield made


def soon() -> Deadline:
    return Deadline.after(PATIENCE)


OTHERS = [
    (AFFINITY, {"cpus": "0"}),
    (NICE, {"nice": "19"}),
    (STOP, {"stopped": "true"}),
    (SIGNAL, {"signal": "SIGTERM"}),
]


@pytest.mark.parametrize(("action", "given"), OTHERS, ids=lambda one: getattr(one, "name", ""))
def test_process_with_reused_pid_is_left_alone(target: Target, action: object, given: dict[str, str]) -> None:
    """As after a reboot, or when the numbers have come round."""
    reused = structs.replace(target, started=target.started + 1)
    resource = action.resource(Access(reused, Secret()), "")  # type: ignore[attr-defined]
    affinity, nice = os.sched_getaffinity(target.pid), os.getpriority(os.PRIO_PROCESS, target.pid)
    values: dict[str, Value] = {"cpus": "0"} if action is AFFINITY else {"nice": 19}
    if action in (STOP, SIGNAL):
        values = {"stopped": True} if action is STOP else {"running": False}
        assert resource.read(soon()).values["running"] is False
        with pytest.raises(UsageError, match="has ended") if action is STOP else pytest.raises(Refused, match="ended"):
            action.desired_values(given, resource.read(soon()))  # type: ignore[attr-defined]
            resource.write(values, "", soon())
    else:
        with pytest.raises(Refused, match="has ended"):
            resource.read(soon())
    with pytest.raises(Refused, match="has ended"):
        resource.write(values, "", soon())
    assert os.sched_getaffinity(target.pid) == affinity
    assert os.getpriority(os.PRIO_PROCESS, target.pid) == nice
    assert Process.of(target).state() not in (None, "T")


@pytest.mark.parametrize(("pid", "began"), [(0, 5.0), (1, 5.0), (-1, 5.0), (12345, 0.0)])
def test_target_must_name_its_process(pid: int, began: float) -> None:
    with pytest.raises(UsageError, match="names no process"):
        AFFINITY.resource_id(Target("x", "process", pid=pid, started=began), {})


def test_zombie_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Process(process.pid, started(process.pid)).state() is None
    process.wait()
    assert Process(process.pid, 1).state() is None


class Threads:
    """Values of threads that a test keeps; `ends` after so many writes the process is killed, as a crash of ours."""

    def __init__(self, target: Target, *values: str) -> None:
        self.threads = threads(target.pid)
        self.values = dict(zip(self.threads, values, strict=True))
        self.left = 1000
        process = Process.of(target)
        self.resource = ThreadSetting(process, "x", self.values.__getitem__, self.put, lambda _, value: f"set {value}")

    def put(self, thread: int, value: Value) -> None:
        if not self.left:
            raise InterruptedError
        self.left -= 1
        self.values[thread] = str(value)


CHANGE = Change("step", "x", "x", (Field("x", "old", "new"),), "restore", "old")


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize(("first", "then"), [
    (ChangeState.AFTER, ChangeState.AFTER),
    (ChangeState.AFTER, ChangeState.BEFORE),
    (ChangeState.BEFORE, ChangeState.BEFORE),
    (ChangeState.BEFORE, ChangeState.AFTER),
])  # fmt: skip
def test_interrupted_write_can_be_completed_or_undone(
    target: Target, written: int, first: ChangeState, then: ChangeState
) -> None:
    at = Threads(target, *(["old"] * 3 if first is ChangeState.AFTER else ["new"] * 3))
    at.left = written
    if written < 3:
        with pytest.raises(Refused):  # the interruption
            ensure(CHANGE, first, at.resource, soon())
        expected = {0: {"old": ChangeState.BEFORE, "new": ChangeState.AFTER}[next(iter(at.values.values()))]}
        assert state_of_change(CHANGE, at.resource.read(soon())) is expected.get(written, ChangeState.BETWEEN)
    at.left = 1000
    ensure(CHANGE, then, at.resource, soon())
    assert set(at.values.values()) == {"new" if then is ChangeState.AFTER else "old"}


def test_thread_set_by_another_client_is_a_conflict(target: Target) -> None:
    at = Threads(target, "old", "theirs", "new")
    with pytest.raises(Conflict, match=r"new \| old \| theirs"):
        ensure(CHANGE, ChangeState.BEFORE, at.resource, soon())
    assert list(at.values.values()) == ["old", "theirs", "new"]


def test_threads_that_differ_cannot_be_planned(target: Target) -> None:
    thread = threads(target.pid)[1]
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 1)
    state = NICE.resource(Access(target, Secret()), "").read(soon())
    with pytest.raises(UsageError, match="the threads differ"):
        NICE.desired_values({"nice": "19"}, state)


def test_concurrent_change_is_detected(target: Target) -> None:
    at = Threads(target, "old", "old", "old")
    with pytest.raises(Contended):
        at.resource.write({"x": "new"}, "other", soon())
    assert set(at.values.values()) == {"old"}


def test_value_not_applied_by_the_kernel_is_restored(target: Target) -> None:
    """As in a cgroup with fewer CPUs than requested."""
    at = Threads(target, "old", "old", "old")
    real = at.put
    object.__setattr__(at.resource, "put", lambda thread, value: real(thread, "less" if value == "new" else value))
    with pytest.raises(Refused, match="not available, only less"):
        ensure(CHANGE, ChangeState.AFTER, at.resource, soon())
    assert set(at.values.values()) == {"old"}


@given(some.frozensets(some.integers(0, 300), min_size=1))
def test_cpu_set_has_one_text(numbers: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(numbers)) == numbers
    assert format_cpu_list(parse_cpu_list(format_cpu_list(numbers))) == format_cpu_list(numbers)


@pytest.mark.parametrize("text", ["", "-1", "3-1", "0-99999", "1,,2", "a", "0-8192", "1-2-3", "0x1", "١"])
def test_invalid_cpu_lists_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        parse_cpu_list(text)
    assert list(AFFINITY.check_arguments({"cpus": text}))


def test_unavailable_cpu_is_refused(target: Target) -> None:
    resource = AFFINITY.resource(Access(target, Secret()), "")
    before = resource.read(soon())
    with pytest.raises(Refused):
        resource.write({"cpus": "8000"}, before.version, soon())
    assert resource.read(soon()) == before


def test_nice_is_planned_only_if_it_can_be_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State({"nice": 0}, "0")
    monkeypatch.setattr(process_scheduling, "lowest_permitted_nice", lambda: 20)
    with pytest.raises(UsageError, match="could not be undone"):
        NICE.desired_values({"nice": "5"}, state)
    assert NICE.desired_values({"nice": "0"}, state) == {"nice": 0}
    monkeypatch.setattr(process_scheduling, "lowest_permitted_nice", lambda: 0)
    assert NICE.desired_values({"nice": "5"}, state) == {"nice": 5}
    with pytest.raises(UsageError):
        NICE.desired_values({"nice": "-1"}, state)


@pytest.mark.parametrize(("privileged", "limit", "lowest"), [
    (True, 0, -20),
    (False, 0, 20),
    (False, 20, 0),
    (False, 40, -20),
    (False, -1, -20),
])  # fmt: skip
def test_lowest_permitted_nice(monkeypatch: pytest.MonkeyPatch, privileged: bool, limit: int, lowest: int) -> None:
    monkeypatch.setattr(process_scheduling, "_has_cap_sys_nice", lambda: privileged)
    monkeypatch.setattr(process_scheduling.resource, "getrlimit", lambda _: (limit, limit))
    assert lowest_permitted_nice() == lowest


@pytest.mark.parametrize("level", ["", "20", "-21", "1.5", "5ms", "high"])
def test_invalid_nice_is_rejected(level: str) -> None:
    assert list(NICE.check_arguments({"nice": level}))


@pytest.mark.parametrize(
    "given", [{}, {"signal": "SIGKILL"}, {"signal": "9"}, {"signal": "TERM"}, {"signal": "SIGSTOP"}]
)
def test_no_other_signal_can_be_sent(given: dict[str, str]) -> None:
    assert list(SIGNAL.check_arguments(given))
    with pytest.raises(UsageError):
        SIGNAL.desired_values(given, State({"running": True}))


def test_sighup_is_sent_once(target: Target) -> None:
    resource = SIGNAL.resource(Access(target, Secret()), "")
    wanted = SIGNAL.desired_values({"signal": "SIGHUP"}, resource.read(soon()))
    change = Change("step", SIGNAL.name, "x", (Field("hung-up", False, wanted["hung-up"]),), "irreversible")
    assert ensure(change, ChangeState.AFTER, resource, soon())
    assert not ensure(change, ChangeState.AFTER, resource, soon())
    assert os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT).si_status == signal.SIGHUP


def test_ended_process_cannot_be_restored(target: Target) -> None:
    resource = ProcessState(Process.of(target))
    resource.write({"running": False}, "", soon())
    with pytest.raises(Refused, match="cannot be undone"):
        resource.write({"running": True}, "", soon())
    assert resource.manual_command({"running": True}).startswith("ps -p")


DEAF = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"


def test_process_that_ignores_a_signal_is_reported() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        resource = ProcessState(Process(process.pid, started(process.pid)))
        with pytest.raises(Unreachable, match="did not react"):
            resource.write({"running": False}, "", Deadline.after(0.05))
        assert resource.read(soon()).values["running"] is True
        process.kill()
