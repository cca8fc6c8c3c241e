"""A real Prometheus server on the loopback interface, with a history that was put into it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from tests.waiting import comes_about

PATIENCE = 30.0  # seconds; it is ready within one


def binaries() -> tuple[str, str]:
    """`prometheus` and `promtool`; absent locally it skips, absent in CI it fails."""
    folder = os.environ.get("LATDOCTOR_PROMETHEUS", "")
    found = [shutil.which(name, path=folder or None) for name in ("prometheus", "promtool")]
    if all(found):
        return str(found[0]), str(found[1])
    reason = "no Prometheus here: install it, or name the folder of prometheus and promtool in LATDOCTOR_PROMETHEUS"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def prometheus(folder: Path, openmetrics: str, *more: str, scrape: dict[str, str] | None = None) -> Iterator[str]:
    """The address of a server with the history `openmetrics`, which scrapes `scrape` (job → host:port) every second."""
    server, tool = binaries()
    (folder / "history.txt").write_text(openmetrics)
    data = folder / "data"
    command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.txt"), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    jobs = [f"{{job_name: {job}, static_configs: [{{targets: ['{place}']}}]}}" for job, place in (scrape or {}).items()]
    interval = "1s" if jobs else "1h"
    config = f"global: {{scrape_interval: {interval}}}\nscrape_configs: [{', '.join(jobs)}]\n"
    (folder / "prometheus.yml").write_text(config)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}", *more]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [server, *options, f"--web.listen-address={place}", "--storage.tsdb.retention.time=10y"],
            stdout=log,
            stderr=log,
        )
    try:
        _wait(place, running, folder / "log")
        yield f"http://{place}"
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _wait(place: str, running: subprocess.Popen[bytes], log: Path) -> None:
    if not comes_about(lambda: running.poll() is not None or _is_ready(place), PATIENCE) or running.poll() is not None:
        pytest.fail(f"Prometheus did not start:\n{log.read_text()[-2000:]}")


def _is_ready(place: str) -> bool:
    try:
        # Behind TLS or a password it answers with an error, which is an answer.
        return httpx.get(f"http://{place}/-/ready", timeout=1).status_code != HTTPStatus.SERVICE_UNAVAILABLE
    except httpx.HTTPError:
        return False
