"""The exported plan in a real Locust: one process, then a master with two workers, on the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latdoctor.load.arrivals import Constant, OnOff, Poisson, Population
from latdoctor.load.distributions import ConstantValue, Exponential, Geometric
from latdoctor.load.drivers.locust_file import locust_file
from latdoctor.load.mix import Mix, body
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy, digest, plan_digest, schedule
from latdoctor.load.request_template import RequestTemplate
from latdoctor.load.session_counts import SessionCounts
from latdoctor.load.summary import LoadProblemCode, LoadResult
from latdoctor.load.user_sessions import User, arrivals_of
from latdoctor.load.users import Users
from tests.load.drivers.programs import locust_python
from tests.load.drivers.recording import Received, recording

SOURCE = Path(__file__).parents[3] / "src"
PLAN = LoadPlan(
    (
        LoadPhase("calm", 1.0, Poisson(40), Mix(sessions=3)),
        LoadPhase("rush", 1.0, OnOff(120, 0.3, 0.2, 20), Mix(long_share=0.4)),
    ),
    seed=5,
    retry=RetryPolicy(RetryKind.IMMEDIATE, attempts=2),
    late_ms=5000,
)


class Locust:
    """Locust processes with one locustfile; `result` is what the master wrote."""

    def __init__(
        self, folder: Path, plan: LoadPlan, request: RequestTemplate | None = None, times: float = 1.0
    ) -> None:
        self._python = locust_python()
        self._folder = folder
        (folder / "locustfile.py").write_text(locust_file(plan, request=request, times=times))
        self._result = folder / "result.json"

    def start(self, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "PYTHONPATH": str(SOURCE)}
        return subprocess.Popen(
            [self._python, "-m", "locust", "-f", str(self._folder / "locustfile.py"), "--only-summary", *options],
            env={**environment, "LOAD_RESULT": str(self._result), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def start_master_and_workers(self, address: str, workers: int) -> list[subprocess.Popen[bytes]]:
        port = str(free_port())
        master = self.start(
            "--headless", "--host", address, "--master", "--expect-workers", str(workers),
            "--master-bind-host", "127.0.0.1", "--master-bind-port", port,
        )  # fmt: skip
        options = ("--worker", "--master-host", "127.0.0.1", "--master-port", port)
        return [master, *(self.start(*options, LOAD_AUTHORIZATION="Bearer x") for _ in range(workers))]

    def end(self, *processes: subprocess.Popen[bytes]) -> str:
        """What they printed, once they have ended by themselves."""
        return "\n".join(process.communicate(timeout=120)[0].decode() for process in processes)

    def result(self, log: str) -> LoadResult:
        assert self._result.exists(), log
        return msgspec.json.decode(self._result.read_bytes(), type=LoadResult)


def assert_all_sent(received: list[Received], plan: LoadPlan) -> None:
    """Each request of the schedule once, with the body of `lab load`, and its retries."""
    planned = {f"{plan.seed}-{one.index}": one for one in schedule(plan)}
    first = [one for one in received if one.attempt == "0"]
    assert Counter(one.id for one in first) == Counter(planned.keys())
    assert all(one.body == body(planned[one.id].ask, one.id, 0) for one in first)
    again = Counter(one.id for one in received if one.attempt == "1")
    assert again == Counter(name for name in planned if name.endswith("0"))


def assert_whole(result: LoadResult, plan: LoadPlan) -> None:
    assert result.schedule == digest(schedule(plan))
    assert result.total.counts.requests == result.total.counts.answered == len(schedule(plan))
    assert [phase.name for phase in result.phases] == ["calm", "rush"]
    assert LoadProblemCode.STOPPED not in {problem.code for problem in result.problems}


def test_one_process_sends_what_lab_load_sends_and_leaves_the_same_result(tmp_path: Path) -> None:
    locust = Locust(tmp_path, PLAN)
    with recording() as server:
        log = locust.end(locust.start("--headless", "--host", server.address))
    assert_all_sent(server.received, PLAN)
    assert_whole(locust.result(log), PLAN)
    assert "calm" in log  # Locust's own table is by phase
    assert "rush" in log


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_master_and_two_workers_send_the_schedule_together(tmp_path: Path) -> None:
    locust = Locust(tmp_path, PLAN)
    with recording() as server:
        log = locust.end(*locust.start_master_and_workers(server.address, 2))
    assert_all_sent(server.received, PLAN)
    assert_whole(locust.result(log), PLAN)
    assert {one.headers["authorization"] for one in server.received} == {"Bearer x"}
    halves = [line for line in log.splitlines() if " requests of " in line]
    assert len(halves) == 2, log
    assert all(f" of {len(schedule(PLAN)[index::2])}," in "".join(halves) for index in (0, 1))


TALKING = LoadPlan(
    (
        LoadPhase("calls", 1.5, Poisson(12.0), users=Users(Geometric(3.0), Exponential(0.05))),
        LoadPhase("desk", 1.0, Population(4), users=Users(ConstantValue(2.0), ConstantValue(0.1))),
    ),
    seed=5,
    late_ms=5000,
)


def texts_of(one: Received) -> list[object]:
    """What a turn says, and what it repeats of those before."""
    fields = msgspec.json.decode(one.body)
    return [fields.get("text", fields.get("audio_seconds")), fields.get("transcript", [])]


def said(user: User, mix: Mix, turns: int) -> list[list[object]]:
    """What `user` says, by the draws of `lab load`."""
    contents = [msgspec.json.decode(body(user.content(mix), "", 0)) for _ in range(turns)]
    return [[one.get("text", one.get("audio_seconds")), one.get("transcript", [])] for one in contents]


def test_users_of_two_workers_send_the_turns_of_lab_load(tmp_path: Path) -> None:
    locust = Locust(tmp_path, TALKING)
    with recording() as server:
        log = locust.end(*locust.start_master_and_workers(server.address, 2))
    result = locust.result(log)
    turns: dict[str, list[list[object]]] = {}
    for one in server.received:
        turns.setdefault(msgspec.json.decode(one.body)["session"], []).append(texts_of(one))
    users = [(User(TALKING.phases[0].users or Users(), 5, one.name, 0)) for one in arrivals_of(TALKING, 0)]
    expected = [said(user, Mix(), user.turns) for user in users]
    # Each user of the first phase says all it was going to say; those of the second are places of the desk.
    assert all(one in turns.values() for one in expected), log
    assert result.sessions is not None
    assert result.phases[0].sessions == SessionCounts(len(users), len(users), turns=sum(user.turns for user in users))
    assert result.phases[1].sessions is not None
    assert result.phases[1].sessions.arrived > 4
    assert result.total.counts.requests == len(server.received) == result.sessions.turns
    assert result.schedule == plan_digest(TALKING, ())


def test_users_hang_up_when_their_patience_is_over(tmp_path: Path) -> None:
    users = Users(ConstantValue(3), ConstantValue(0.01), patience_s=ConstantValue(0.3))
    plan = LoadPlan((LoadPhase("calls", 1.0, Constant(10), users=users),), late_ms=5000)
    locust = Locust(tmp_path, plan)
    with recording(frozen=(0.0, 5.0)) as server:
        log = locust.end(locust.start("--headless", "--host", server.address))
    assert locust.result(log).sessions == SessionCounts(10, abandoned_slow=10, turns=10)


def test_a_frozen_server_delays_no_later_request_and_counts_from_the_planned_time(tmp_path: Path) -> None:
    plan = LoadPlan((LoadPhase("only", 1.5, Constant(60), Mix(long_share=0)),), late_ms=5000)
    locust = Locust(tmp_path, plan)
    with recording(frozen=(0.3, 1.1)) as server:
        log = locust.end(locust.start("--headless", "--host", server.address))
    result = locust.result(log)
    assert len([one for one in server.received if 0.35 < one.at < 1.05]) > 20, log
    assert 0.6 < (result.total.p99 or 0) < 5
    assert result.generator.most_in_flight > 20


def test_timeouts_and_lost_connections_are_counted_and_end_the_run(tmp_path: Path) -> None:
    plan = LoadPlan((LoadPhase("only", 1.0, Constant(30)),), timeout_s=0.2, late_ms=5000)
    locust = Locust(tmp_path, plan)
    with recording(frozen=(0.0, 2.0)) as server:
        log = locust.end(locust.start("--headless", "--host", server.address))
    assert locust.result(log).total.counts.timed_out == 30
    gone = f"http://127.0.0.1:{free_port()}"
    log = locust.end(locust.start("--headless", "--host", gone))
    assert locust.result(log).total.statuses == {"no-connection": 30}


def test_another_request_and_a_multiplied_rate(tmp_path: Path) -> None:
    plan = LoadPlan((LoadPhase("only", 1.0, Constant(20), Mix(long_share=0)),), late_ms=5000)
    locust = Locust(tmp_path, plan, RequestTemplate("/predict", '{"p": "$PROMPT"}'), times=3.0)
    with recording() as server:
        log = locust.end(locust.start("--headless", "--host", server.address))
    assert len(server.received) == 60, log
    assert {one.path for one in server.received} == {"/predict"}
    assert all(20 <= len(msgspec.json.decode(one.body)["p"].split()) <= 60 for one in server.received)


@pytest.mark.parametrize("name", ["locust", "gevent"])
def test_locust_is_not_in_the_process_of_latdoctor(name: str) -> None:
    import sys

    loaded: dict[str, Any] = dict(sys.modules)
    assert name not in loaded
