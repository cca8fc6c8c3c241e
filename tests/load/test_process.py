"""The real thing, for a second each: a process of its own, HTTP, and a small server on the loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack

import msgspec
import pytest
from msgspec.structs import replace

from latdoctor.errors import OperationError, UsageError
from latdoctor.load.arrivals import Constant
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import Progress
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy
from latdoctor.load.process import LoadOrder, LoadProcess, run_load, saturate, start_load
from latdoctor.load.summary import LoadProblemCode
from tests.load.tiny_server import serving


def test_frozen_server_shows_in_latencies_and_attempts_are_numbered() -> None:
    phases = (LoadPhase("only", 1.4, Constant(100), Mix(malformed_share=0.1, sessions=3)),)
    plan = LoadPlan(phases, retry=RetryPolicy(RetryKind.IMMEDIATE), slo_s=0.2)
    seen: list[Progress] = []
    with serving(frozen=(0.4, 1.0)) as server, start_load(plan, server.address, report_s=0.2) as process:
        started = process.wait_started()
        result = process.wait(seen.append)
    counts = result.total.counts
    assert result.started == started
    assert counts.requests == 140
    assert counts.requests == counts.answered + counts.rejected
    # Frozen for 600 ms in 1.4 s: three in seven meet it, and the unlucky first of them waits it all out.
    assert 0.55 < (result.total.p99 or 0) < 3
    assert (result.total.p95 or 0) > 0.4
    assert counts.good < 0.85 * counts.requests
    # Retries: one for each tenth request that was not malformed, marked in the header and in the body.
    again = [request for request, _, attempt in server.attempts if attempt == 1]
    assert counts.retries == len(again) == len(set(again)) > 5
    assert all(int(header) == attempt for _, header, attempt in server.attempts)
    assert result.total.statuses == {"200": counts.answered, "400": counts.rejected, "503": counts.retries}
    assert seen[-1].ended == 140
    assert any(told.in_flight > 10 and told.oldest > 0.1 for told in seen)


def test_answers_for_other_requests_are_failures() -> None:
    plan = LoadPlan((LoadPhase("only", 0.2, Constant(50)),))
    with serving(wrong=True) as server:
        result = run_load(plan, server.address)
    assert (result.total.counts.answered, result.total.counts.failed) == (0, 9)
    assert result.total.statuses == {"503": 1, "bad-answer": 9}


def test_a_server_that_vanishes_is_counted() -> None:
    plan = LoadPlan((LoadPhase("only", 0.8, Constant(50)),))
    with ExitStack() as living:
        server = living.enter_context(serving())
        with start_load(plan, server.address, report_s=0.1) as process:
            result = process.wait(lambda told: living.close() if told.ended else None)
    counts = result.total.counts
    assert counts.requests == 40 == counts.answered + counts.refused + counts.failed
    assert counts.answered > 0
    assert result.total.statuses["no-connection"] > 5


def test_failed_generator_is_reported_with_its_last_output() -> None:
    plan = LoadPlan((LoadPhase("only", 1, Constant(1)),))
    with (
        LoadProcess(LoadOrder(plan, "http://127.0.0.1:1", saturate_s=1, phase="missing")) as process,
        pytest.raises(OperationError, match="ended early: RuntimeError"),
    ):
        process.wait_saturation()


def test_a_stopped_run_gives_its_result_and_says_so() -> None:
    plan = LoadPlan((LoadPhase("only", 60, Constant(50)),))
    with serving() as server, start_load(plan, server.address, report_s=0.1) as process:
        result = process.wait(lambda told: process.stop() if told.ended else None)
    assert 0 < result.total.counts.requests < 1000
    assert result.problems[0].code is LoadProblemCode.STOPPED


def test_generator_stops_when_its_caller_is_killed() -> None:
    order = LoadOrder(LoadPlan((LoadPhase("only", 600, Constant(5)),)), "", report_s=0.1)
    with serving() as server:
        command = [sys.executable, "-m", "latdoctor.load"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write(msgspec.json.encode(replace(order, address=server.address)) + b"\n")
            one.stdin.flush()
            assert b"started" in one.stdout.readline()
            one.stdout.close()  # as the kernel does when the caller ends
            try:
                one.wait(timeout=60)
            finally:
                one.kill()


def test_saturation_over_http() -> None:
    plan = LoadPlan((LoadPhase("calm", 1, Constant(1)), LoadPhase("rush", 1, Constant(1))))
    with serving() as server:
        found = saturate(plan, server.address, 0.4, phase="rush", in_flight=4)
    assert found.answered > 20
    assert found.rate == pytest.approx(found.answered / 0.3)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://127.0.0.1:1", "must be an http address"),
        ("127.0.0.1:8000", "must be an http address"),
        ("http://127.0.0.1:port", "invalid address"),
        ("http://192.0.2.1:8000", "not this machine"),
        ("http://example.test", "not this machine"),
    ],
)
def test_where_no_load_is_sent(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_load(LoadPlan((LoadPhase("only", 1, Constant(1)),)), address)


def test_saturating_needs_a_phase_and_a_bound() -> None:
    plan = LoadPlan((LoadPhase("only", 1, Constant(1)),))
    for wrong in ({"phase": "other"}, {"in_flight": 0}, {"seconds": 0.0}):
        with pytest.raises(UsageError):
            saturate(plan, "http://127.0.0.1:1", **{"seconds": 1.0, **wrong})  # type: ignore[arg-type]


def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OperationError, match="nothing answers"):
        run_load(LoadPlan((LoadPhase("only", 1, Constant(1)),)), address)
