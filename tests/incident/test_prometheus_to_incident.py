"""From a metric to an incident: a real Prometheus with a shipped rule, a real Alertmanager, and the listener."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import pytest

from latdoctor.incident import events, prometheus_rules
from latdoctor.incident.alertmanager import fingerprint_of
from latdoctor.incident.state import decode_body
from tests.collectors.promql.real import binaries
from tests.incident.listen_process import PATIENCE, Page, listener, paged, until, until_journaled

CANARY = "c4n4ry"


def alertmanager() -> str:
    """The program; absent locally it skips, absent in CI it fails."""
    found = shutil.which("prometheus-alertmanager", path=os.environ.get("LATDOCTOR_ALERTMANAGER") or None)
    if found:
        return found
    reason = "no Alertmanager here: install it, or name the folder of prometheus-alertmanager in LATDOCTOR_ALERTMANAGER"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_place() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def running(command: list[str], ready: str, log: Path) -> Iterator[None]:
    """A program, from when it says what `ready` matches; all that it says is in `log`."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    told: SimpleQueue[bool] = SimpleQueue()
    hearing = threading.Thread(target=_hear, args=(process.stdout, re.compile(ready), told, log))
    hearing.start()
    try:
        assert told.get(timeout=PATIENCE), log.read_text()[-2000:]
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)
        hearing.join()


def _hear(lines: IO[str], ready: re.Pattern[str], told: SimpleQueue[bool], log: Path) -> None:
    with lines, log.open("w") as kept:
        for line in lines:
            print(line, end="", file=kept, flush=True)
            if ready.search(line):
                told.put(True)
    told.put(False)  # it has ended


def quick(rules: str) -> str:
    """The shipped rules, not waiting as long: a test sees a minute of it, not ten."""
    return (
        rules.replace("[5m]", "[10s]")
        .replace("[2m]", "[5s]")
        .replace("for: 1m", "for: 1s")
        .replace("for: 2m", "for: 1m")
    )


@contextmanager
def chain(folder: Path, page: Page, receiver: str) -> Iterator[None]:
    prometheus, manager = binaries()[0], alertmanager()
    alerts_at, metrics_at = free_place(), free_place()
    (folder / "reference.rules.yml").write_text(quick(prometheus_rules.text("reference", 0.5)))
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{folder / 'reference.rules.yml'}]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{alerts_at}']}}]}}]}}\n"
        f"scrape_configs: [{{job_name: shop, static_configs: [{{targets: ['{page.url.split('/')[2]}']}}]}}]\n"
    )
    (folder / "alertmanager.yml").write_text(
        "route: {receiver: latdoctor, group_by: [job], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}\n"
        "receivers: [{name: latdoctor, webhook_configs: [{send_resolved: true, "
        f"url: '{receiver}', http_config: {{authorization: {{credentials_file: {folder / 'token'}}}}}}}]}}]\n"
    )
    with ExitStack() as stack:
        stack.enter_context(
            running(
                [
                    *(manager, f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'am'}"),
                    *(f"--web.listen-address={alerts_at}", "--cluster.listen-address="),
                ],
                "Listening on",
                folder / "alertmanager.log",
            )
        )
        stack.enter_context(
            running(
                [
                    *(prometheus, f"--config.file={folder / 'prometheus.yml'}"),
                    *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={metrics_at}"),
                    "--rules.alert.resend-delay=1s",
                ],
                "Server is ready to receive web requests",
                folder / "prometheus.log",
            )
        )
        yield


def test_metric_becomes_an_incident_and_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CANARY)
    look = ("--slo", "500ms", "--window", "2s", "--every", "1s")
    with (
        paged(Page(each=(300, 100))) as page,
        listener(tmp_path, "--auth-file", "token", "--server", page.url, *look) as listening,
        chain(tmp_path, page, listening.url),
    ):
        until(lambda: bool(listening.incidents and listening.incidents[0].of(events.CONFIRMED)), listening)
        page.each = (400, 0)
        until(lambda: not listening.incidents[0].firing, listening)
        before = len(listening.incidents[0].of(events.ALERTED))
        sampled = len(listening.incidents[0].of(events.SAMPLED))
        until_journaled(lambda: len(listening.incidents[0].of(events.SAMPLED)) > sampled + 2, listening)
        (incident,) = listening.incidents
    assert listening.process.returncode == 0
    assert incident.open, "a resolved alert closes nothing by itself"
    assert len(incident.of(events.ALERTED)) == before, "repetitions add nothing"
    (said,) = (decode_body(entry, events.AlertConfirmed) for entry in incident.of(events.CONFIRMED))
    assert said.status == "confirmed"
    over = [alert for alert in incident.alerts.values() if alert.name == "LatencyP99OverSLO"]
    (alert,) = over
    assert alert.labels["job"] == "shop"
    summary = alert.annotations["summary"]
    assert summary.startswith(f"P99 of {page.url.split('/')[2]} is ")
    assert summary.endswith("over its SLO")
    assert alert.fingerprint == fingerprint_of(alert.labels), "an Alertmanager computes it so"
    assert alert.starts_at is not None
    assert alert.ends_at is not None
    assert incident.opened.began == min(
        one.starts_at or 0 for one in incident.alerts.values() if one.name == alert.name
    )
    assert CANARY not in "\n".join(listening.said)
