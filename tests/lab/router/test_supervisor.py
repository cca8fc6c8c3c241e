"""The supervisor: processes that are lost, hang, cannot be started, or outlive their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from latdoctor.errors import OperationError, UsageError
from latdoctor.lab.server import parent_watch
from latdoctor.lab.server.replica_pool import ReplicaPool
from latdoctor.lab.server.serve_replicas import RouterOptions, serve_router
from latdoctor.lab.server.supervisor import ReplicaCommand, Supervisor, SupervisorTimeouts, free_ports
from tests.lab.router.cluster import DEADLINE, QUICK, TOKEN, commands, run


def fleet_of(started: tuple[ReplicaCommand, ...]) -> ReplicaPool:
    return ReplicaPool({one.name: one.url for one in started})


def test_a_replica_that_does_not_heed_the_signal_is_killed() -> None:
    async def test() -> None:
        started = commands("a", mode="stubborn")
        fleet = fleet_of(started)
        supervisor = Supervisor(fleet, started, msgspec.structs.replace(QUICK, drain=0.05))
        await supervisor.start()
        await fleet.until(lambda all_: all_[0].state == "ready", DEADLINE)
        pid = fleet.known("a").pid
        await supervisor.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(test)


def test_a_replica_that_does_not_become_ready_in_time_is_replaced() -> None:
    async def test() -> None:
        started = commands("a", mode="never-ready")
        fleet = fleet_of(started)
        supervisor = Supervisor(fleet, started, msgspec.structs.replace(QUICK, start=0.05))
        await supervisor.start()
        await fleet.until(lambda all_: all_[0].losses >= 2, DEADLINE)
        await supervisor.stop()

    run(test)


def test_a_program_that_cannot_be_started_is_tried_again_and_its_words_are_kept(tmp_path: Path) -> None:
    async def test() -> None:
        log = tmp_path / "a.log"
        command = ReplicaCommand("a", ("no-such-program",), f"http://127.0.0.1:{free_ports(1)[0]}", log=str(log))
        fleet = fleet_of((command,))
        supervisor = Supervisor(fleet, [command], QUICK)
        await supervisor.start()
        await fleet.until(lambda all_: all_[0].losses >= 2, DEADLINE)
        with pytest.raises(OperationError, match=r"a is (starting|lost)"):
            await fleet.until(lambda all_: all_[0].state == "ready", 0.01)
        await supervisor.stop()
        assert log.read_text().startswith("no-such-program: No such file or directory\n")

    run(test)


def test_a_replica_that_is_being_replaced_cannot_be_replaced_once_more() -> None:
    async def test() -> None:
        command = ReplicaCommand("a", ("no-such-program",), f"http://127.0.0.1:{free_ports(1)[0]}")
        fleet = fleet_of((command,))
        supervisor = Supervisor(fleet, [command], SupervisorTimeouts(first_pause=60, longest_pause=60))
        await supervisor.start()
        await fleet.until(lambda all_: all_[0].state == "lost", DEADLINE)
        with pytest.raises(OperationError, match="no process now"):
            await supervisor.replace("a")
        with pytest.raises(UsageError, match="no replica 'z'"):
            await supervisor.replace("z")
        await supervisor.stop()

    run(test)


def test_commands_must_be_those_of_the_fleet() -> None:
    with pytest.raises(UsageError, match="exactly one command"):
        Supervisor(ReplicaPool({"a": "http://127.0.0.1:1"}), commands("b"))


def test_ports_are_free_and_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_tethered_program_ends_when_its_parent_is_killed() -> None:
    child = "import sys, time\nprint('up', flush=True)\ntime.sleep(600)"
    code = (
        "import os, subprocess, sys\n"
        f"subprocess.run([sys.executable, {parent_watch.__file__!r}, str(os.getpid()),"
        f" sys.executable, '-c', {child!r}])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"up\n"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert parent.stdout.read() == b""  # the pipe ends when the last of the two has ended


def test_a_tethered_program_is_not_started_for_a_parent_that_has_gone() -> None:
    done = subprocess.run([sys.executable, parent_watch.__file__, "1", "echo", "up"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_serving_announces_when_all_are_ready_and_ends_in_order() -> None:
    async def test() -> None:
        started, end = commands("a", "b"), asyncio.Event()
        announced: asyncio.Queue[str] = asyncio.Queue()
        options = RouterOptions(started, timeouts=QUICK, token=TOKEN, grace_seconds=0)
        serving = asyncio.create_task(serve_router(options, announce=announced.put_nowait, end=end, signals=()))
        url = await announced.get()
        assert [await announced.get() for _ in started] == [one.url for one in started]
        async with aiohttp.ClientSession(url) as session:
            async with session.get("/readyz") as answer:
                assert (await answer.json())["ready"] == 2
            async with session.get("/admin/replicas", headers={"authorization": f"Bearer {TOKEN}"}) as answer:
                pids = [one["pid"] for one in await answer.json()]
            async with session.post("/v1/echo", data="x") as answer:
                assert (await answer.json())["body"] == "x"
        end.set()
        await serving
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    run(test)


def test_serving_that_never_gets_ready_says_so_and_leaves_nothing_behind() -> None:
    async def test() -> None:
        timeouts = msgspec.structs.replace(QUICK, start=0.3)
        options = RouterOptions(commands("a", mode="never-ready"), timeouts=timeouts)
        with pytest.raises(OperationError, match="did not reach the expected state"):
            await serve_router(options, announce=lambda _: pytest.fail("nothing is ready"), signals=())

    run(test)


def test_a_replica_that_never_starts_is_given_up_soon() -> None:
    async def test() -> None:
        command = ReplicaCommand("a", ("no-such-program",), f"http://127.0.0.1:{free_ports(1)[0]}", log=os.devnull)
        with pytest.raises(OperationError, match="replica a ended 3 times"):
            await serve_router(
                RouterOptions((command,), timeouts=QUICK), announce=lambda _: pytest.fail("ready"), signals=()
            )

    run(test)
