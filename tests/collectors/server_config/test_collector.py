"""The configuration of a running server, asked beside its metrics page: what is asked, of whom, and what fails."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.prometheus import exposition
from latdoctor.collectors.runner import SystemClock
from latdoctor.collectors.server_config.collector import READER
from latdoctor.collectors.server_config.endpoints import requests_for
from latdoctor.evidence.bundle import Artifact
from latdoctor.gap_code import GapCode

PAGE = b"""# TYPE nv_inference_request_success counter
nv_inference_request_success{model="intent",version="1"} 4100
nv_inference_request_success{model="never-used",version="1"} 0
# TYPE nv_inference_count counter
nv_inference_count{model="intent",version="1"} 4100
"""
CONFIG = {"name": "intent", "max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 40_000}}
PATH = "/v2/models/intent/config"
Seen = list[tuple[str, str]]  # path, Authorization


def _handler(answers: Mapping[str, tuple[int, bytes]], seen: Seen) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            status, body = answers.get(self.path, (404, b"{}"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


@contextlib.contextmanager
def _listening(port: int, answers: Mapping[str, tuple[int, bytes]], seen: Seen) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(answers, seen))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextlib.contextmanager
def triton(api: Mapping[str, tuple[int, bytes]], seen: Seen, page: bytes = PAGE) -> Iterator[int]:
    """A metrics page, and the API two ports below it. Gives the page's port."""
    for _ in range(20):
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(_listening(0, api, seen))
            try:
                metrics = stack.enter_context(_listening(port + 2, {"/metrics": (200, page)}, []))
            except OSError:  # in use
                continue
            yield metrics
            return
    pytest.skip("no two ports that are two apart")


def _collected(address: str) -> CollectResult:
    return READER.collect(CollectRequest(servers=(address,), window=0.0), SystemClock())


def test_a_used_model_is_configured_as_its_api_says() -> None:
    seen: Seen = []
    with triton({PATH: (200, json.dumps(CONFIG).encode())}, seen) as port:
        found = _collected(f"http://127.0.0.1:{port}")
    assert seen == [(PATH, "")], "models that were never used are not asked for"
    assert not found.gaps
    read = READER.parse(found.artifacts)
    values = {(one.subject, one.signal): one.value for one in read.readings}
    subject = f"model/intent@127.0.0.1:{port}"
    assert values[subject, "config.queue_delay"] == pytest.approx(0.04)
    assert values[subject, "config.dynamic_batching"] == 1.0
    assert (subject, f"server/127.0.0.1:{port}") in {(one.id, one.parent) for one in read.subjects}


def test_credentials_of_the_page_go_to_no_other_port() -> None:
    seen: Seen = []
    with triton({PATH: (200, json.dumps(CONFIG).encode())}, seen) as port:
        found = _collected(f"http://ops:hunter2@127.0.0.1:{port}")
    assert seen == [(PATH, "")]
    assert all("hunter2" not in one.source for one in found.artifacts)


FAILURES = [
    ("absent", {}, GapCode.ABSENT),
    ("refused", {PATH: (401, b"{}")}, GapCode.REFUSED),
    ("in-trouble", {PATH: (500, b"{}")}, GapCode.REFUSED),
]


@pytest.mark.parametrize(("api", "code"), [one[1:] for one in FAILURES], ids=[one[0] for one in FAILURES])
def test_an_api_that_gives_no_configuration_is_a_gap(api: dict[str, tuple[int, bytes]], code: GapCode) -> None:
    with triton(api, []) as port:
        found = _collected(f"http://127.0.0.1:{port}")
    assert [(one.code, one.subject) for one in found.gaps] == [(code, f"server/127.0.0.1:{port}")]
    assert "config.queue_delay" in found.gaps[0].signals
    assert found.gaps[0].next_step
    assert not found.artifacts


def test_nothing_is_asked_of_a_server_without_such_an_api() -> None:
    seen: Seen = []
    with triton(
        {}, seen, b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="a"} 1\n'
    ) as port:
        found = _collected(f"http://127.0.0.1:{port}")
    assert (seen, found.artifacts, found.gaps) == ([], (), ())


def test_an_answer_that_is_no_configuration_is_a_gap() -> None:
    artifact = Artifact(
        "server_config/1-a-00.json", "server_config", "1-a", "http://a:8000/x of http://a:8002/metrics", 1.0, b"<html>"
    )
    assert [one.code for one in READER.parse([artifact]).gaps] == [GapCode.UNREADABLE]


ADDRESSES = [
    ("triton", "http://gpu-7:8002/metrics", "triton", "http://gpu-7:8000/v2/models/intent/config"),
    ("triton-ipv6", "http://[fd00::7]:8002/metrics", "triton", "http://[fd00::7]:8000/v2/models/intent/config"),
    ("behind-a-gateway", "https://t.example/metrics", "triton", "https://t.example/v2/models/intent/config"),
    ("ray-serve", "http://head:8080/metrics", "ray-serve", "http://head:8265/api/serve/applications/"),
]


@pytest.mark.parametrize(
    ("page", "dialect", "expected"), [one[1:] for one in ADDRESSES], ids=[one[0] for one in ADDRESSES]
)
def test_the_api_is_at_the_documented_port(page: str, dialect: str, expected: str) -> None:
    found = requests_for(page, exposition.parse(PAGE, "page"), [dialect])
    assert [(one.url, one.display) for one in found] == [(expected, expected)]


def test_credentials_are_kept_where_the_api_is_at_the_same_address() -> None:
    found = requests_for("https://ops:hunter2@t.example/metrics", exposition.parse(PAGE, "page"), ["triton"])
    assert found[0].url.startswith("https://ops:hunter2@t.example/v2/")
    assert "hunter2" not in found[0].display
