"""The client's own metrics page: what is counted of an attempt, and the page of a run under way."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from latdoctor.errors import OperationError
from latdoctor.load.arrivals import Constant
from latdoctor.load.client_metrics import ClientPage, CountingTransport
from latdoctor.load.mix import Mix
from latdoctor.load.openloop import Progress
from latdoctor.load.outcome import NO_CONNECTION, Reply
from latdoctor.load.plan import LoadPhase, LoadPlan, RetryKind, RetryPolicy
from latdoctor.load.process import start_load
from tests.load.tiny_server import serving

Samples = dict[tuple[str, str], float]


def samples(text: str) -> Samples:
    """(name, outcome or size) → value, without the buckets."""
    return {
        (sample.name, sample.labels.get("outcome") or sample.labels.get("size") or ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


class Scripted:
    """Answers with what stands in its script; never, where that is None."""

    def __init__(self, *script: Reply | None) -> None:
        self._script = list(script)

    async def send(self, content: bytes, request_id: str, attempt: int) -> Reply:
        reply = self._script.pop(0)
        return reply or await asyncio.get_running_loop().create_future()


async def attempts(page: ClientPage, *made: tuple[int, int, Reply | None]) -> None:
    """Each a body's size, the attempt's number and what comes of it."""
    transport = CountingTransport(Scripted(*(reply for _, _, reply in made)), page)
    for size, attempt, reply in made:
        sending = asyncio.ensure_future(transport.send(b"x" * size, "r", attempt))
        await asyncio.sleep(0)
        if reply is None:
            assert samples(page.text().decode())["ref_client_in_flight", ""] == 1
            sending.cancel()
        assert (await asyncio.gather(sending, return_exceptions=True))[0] == reply or reply is None


def test_each_attempt_counts_for_itself() -> None:
    page = ClientPage()
    made = [
        (1024, 0, Reply("200", None, 90)),
        (1025, 0, Reply("200", None, 90)),
        (10, 0, Reply("503", 1.0, 20)),
        (10, 1, Reply("429")),
        (10, 2, Reply(NO_CONNECTION)),
        (10, 0, Reply("400")),
        (10, 0, None),
    ]
    asyncio.run(attempts(page, *made))
    found = samples(page.text().decode())
    expected = {
        ("ref_client_request_seconds_count", "small"): 1,
        ("ref_client_request_seconds_count", "large"): 1,
        ("ref_client_requests_total", "answered"): 2,
        ("ref_client_requests_total", "refused"): 2,
        ("ref_client_requests_total", "failed"): 1,
        ("ref_client_requests_total", "rejected"): 1,
        ("ref_client_requests_total", "timed_out"): 1,
        ("ref_client_retries_total", ""): 2,
        ("ref_client_sent_bytes_total", ""): 1024 + 1025 + 50,
        ("ref_client_received_bytes_total", ""): 200,
        ("ref_client_in_flight", ""): 0,
        ("ref_client_connect_seconds_count", ""): 0,
    }
    assert {key: found[key] for key in expected} == expected


def test_a_run_shows_its_page_while_it_lasts() -> None:
    phases = (LoadPhase("only", 60, Constant(100), Mix(long_share=0.5, audio_share=0)),)
    plan = LoadPlan(phases, retry=RetryPolicy(RetryKind.IMMEDIATE))
    seen: list[Samples] = []
    with serving() as server, start_load(plan, server.address, report_s=0.2, metrics_port=0) as process:
        process.wait_started()

        def look(_: Progress) -> None:
            if not seen or seen[-1]["ref_client_requests_total", "answered"] < 40:
                seen.append(samples(httpx.get(f"{process.metrics}/metrics", trust_env=False).text))
            else:
                process.stop()  # and the page goes with the run

        result = process.wait(look)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{process.metrics}/metrics", trust_env=False)
    last = seen[-1]
    assert 40 <= last["ref_client_requests_total", "answered"] <= result.total.counts.answered
    assert last["ref_client_retries_total", ""] > 0
    sizes = [last["ref_client_request_seconds_count", size] for size in ("small", "large")]
    assert min(sizes) > 0
    assert sum(sizes) == last["ref_client_requests_total", "answered"]
    assert last["ref_client_sent_bytes_total", ""] > 300 * sizes[1]
    assert last["ref_client_received_bytes_total", ""] > 0
    assert last["ref_client_connect_seconds_count", ""] > 0
    assert last["ref_client_loop_lag_seconds_count", ""] > 0


def test_without_a_port_nothing_is_shown() -> None:
    plan = LoadPlan((LoadPhase("only", 0.1, Constant(50)),))
    with serving() as server, start_load(plan, server.address) as process:
        process.wait_started()
        assert process.metrics == ""
        process.wait()


def test_port_in_use_is_reported() -> None:
    plan = LoadPlan((LoadPhase("only", 0.1, Constant(50)),))
    with socket.create_server(("127.0.0.1", 0)) as taken, serving() as server:
        port = taken.getsockname()[1]
        with (
            start_load(plan, server.address, metrics_port=port) as process,
            pytest.raises(OperationError, match="client's metrics page"),
        ):
            process.wait_started()
