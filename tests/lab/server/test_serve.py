"""`latdoctor lab serve` as a process, with the real model (a small one)."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import msgspec
import pytest

from tests.lab.server.fakes import PATIENCE
from tests.lab.server.running_server import ADMIN, TOKEN, Running

SMALL = ["--port", "0", "--set", "model.layers=1", "--set", "model.width=64", "--set", "model.precision=fp32"]
STARTS_WITHIN = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "latdoctor", "lab", "serve", *arguments]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    environment = {**os.environ, "LATDOCTOR_ADMIN_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command(*SMALL, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:"), process.stderr and process.stderr.read()
            with httpx.Client(base_url=url, timeout=STARTS_WITHIN, trust_env=False) as client:
                Running.until(lambda: client.get("/readyz").status_code == 200)
                yield process, client
        finally:
            if process.poll() is None:
                process.kill()


class Crowd:
    """Clients that ask one request after the other until the server has gone."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self.statuses: list[int] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        self.some = threading.Event()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._url, timeout=STARTS_WITHIN, trust_env=False) as client:
            while True:
                try:
                    answer = client.post("/v1/intent", json={"text": "where is my order"})
                except httpx.TransportError:
                    return
                self.statuses.append(answer.status_code)
                self.some.set()

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        assert self.some.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(STARTS_WITHIN)


def test_sigterm_drains_accepted_requests_before_exit() -> None:
    """Long requests to a model of the usual size: they queue for longer than the door stays open."""
    accepted = 24

    async def ask_all(url: str, pid: int) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=STARTS_WITHIN, limits=limits, trust_env=False) as client:
            asked = [
                asyncio.ensure_future(client.post("/v1/intent", json={"audio_seconds": 20, "request_id": f"q{number}"}))
                for number in range(accepted)
            ]
            while not re.search(
                rf"^ref_arrivals_total.* {accepted}\.0$", (await client.get("/metrics")).text, re.MULTILINE
            ):
                await asyncio.sleep(0)
            os.kill(pid, signal.SIGTERM)
            return list(await asyncio.gather(*asked))

    with serving("--set", "model.layers=4", "--set", "model.width=256") as (process, client):
        answers = asyncio.run(ask_all(str(client.base_url), process.pid))
        assert [answer.status_code for answer in answers] == [200] * accepted
        assert sorted(answer.json()["request_id"] for answer in answers) == sorted(f"q{n}" for n in range(accepted))
        assert process.wait(STARTS_WITHIN) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_while_it_drains_it_says_so_and_still_answers(server: Running) -> None:
    server.parts.readiness.draining = True
    assert (server.client.get("/readyz").status_code, server.client.get("/healthz").status_code) == (503, 200)
    answer = server.ask(text="a")
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")


def test_a_profile_shows_what_the_worker_computes() -> None:
    with serving() as (process, client), Crowd(str(client.base_url), 1):
        answer = client.post("/debug/profile?seconds=0.3&shapes=1", headers=ADMIN)
        assert answer.status_code == 200
        trace = msgspec.json.decode(gzip.decompress(answer.content))
        names = {event.get("name") for event in trace["traceEvents"]}
        assert {"aten::linear", "aten::softmax"} <= names
        page = client.get("/metrics").text
        assert float(re.findall(r"^ref_page_faults_total\{.*\} (\S+)$", page, re.MULTILINE)[0]) > 0
        assert client.get("/debug/memory", headers=ADMIN).status_code == 200
        tag = client.get("/admin/config", headers=ADMIN).headers["etag"]
        changed = client.patch(
            "/admin/config",
            json={"model": {"version": "v2"}, "governance": {"standby": "on"}, "batching": {"scheduler": "long-alone"}},
            headers={**ADMIN, "if-match": tag},
        )
        assert changed.status_code == 200
        answered = client.post("/v1/intent", json={"audio_seconds": 17.2, "session": "s"}).json()
        assert (answered["source"], answered["model_version"]) == ("standby", "v2")
        client.post("/v1/intent", json={"text": "a"})
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["--host", "0.0.0.0"], 2, "--allow-remote"),  # noqa: S104 - refused
    (["--set", "queue.size=5"], 2, "sets no knob"),
    (["--admin-token-file", "/nowhere/token"], 2, "cannot be read"),
    (["--config", "/nowhere/server.yaml"], 2, "cannot be read"),
    (["--set", "memory.backend=cuda"], 2, ""),
])  # fmt: skip
def test_invalid_options_are_reported_before_anything_starts(arguments: Sequence[str], code: int, said: str) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=STARTS_WITHIN)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            command(*SMALL, "--port", port), capture_output=True, text=True, check=False, timeout=STARTS_WITHIN
        )
    assert done.returncode == 1
    assert "is not available" in done.stderr


def test_without_the_extra_one_clear_error() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['latdoctor', 'lab', 'serve'];"
        "from latdoctor.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'latdoctor[lab]'" in done.stderr
    assert "Traceback" not in done.stderr
