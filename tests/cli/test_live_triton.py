"""`diagnose` of a live Triton that more requests come to than it can answer."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.running import checks, diagnosed
from tests.waiting import comes_about

PATIENCE = 60.0  # seconds; it is ready within seven
CLIENTS = 24
ASKED = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}


def interpreter() -> str:
    """A Python that has nvidia-pytriton; absent locally it skips, absent in CI it fails."""
    named = os.environ.get("LATDOCTOR_TRITON", "")
    if named and Path(named).is_file():
        return named
    reason = "no Triton here: name a Python that has nvidia-pytriton in LATDOCTOR_TRITON"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of its API and of its metrics page."""
    folder = tmp_path_factory.mktemp("triton")
    command = [interpreter(), str(Path(__file__).with_name("triton_server.py")), str(folder)]
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
    try:
        comes_about(lambda: (folder / "ports").exists() or running.poll() is not None, PATIENCE)
        if not (folder / "ports").exists():
            pytest.fail(f"Triton did not start:\n{(folder / 'log').read_text()[-3000:]}")
        http, metrics = (folder / "ports").read_text().split()
        yield f"http://127.0.0.1:{http}", f"http://127.0.0.1:{metrics}/metrics"
    finally:
        if running.stdin:
            running.stdin.close()
        running.wait(PATIENCE)


@pytest.fixture
def crowd(triton: tuple[str, str]) -> Iterator[list[int]]:
    """So many clients, each with one request after the other; counts of what each got."""
    done = threading.Event()
    counts = [0] * CLIENTS

    def client(number: int) -> None:
        with httpx.Client(timeout=30) as http:
            while not done.is_set():
                http.post(f"{triton[0]}/v2/models/double/infer", json=ASKED).raise_for_status()
                counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    yield counts
    done.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_what_a_live_triton_shows(triton: tuple[str, str], crowd: list[int]) -> None:
    document = diagnosed("--server", triton[1], "--no-nvml", "--window", "4s", "--slo", "1s")
    fired = checks(document, "fired")
    coverage = {row["collector"]: row["status"] for row in document["coverage"]}
    assert sum(crowd) > CLIENTS
    assert coverage["prometheus"] == "partly"  # this Triton tells no quantiles
    assert "queue-builds-up" in fired, sorted(fired)
    assert checks(document, "clear"), "of what a live Triton shows something is as it should be"
