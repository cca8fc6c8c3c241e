"""A real Prometheus and a real Alertmanager are recognised where an inference server is expected."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.prometheus import discovery
from latdoctor.collectors.prometheus.collector import READER
from latdoctor.collectors.promql.recognise_monitoring_server import (
    MonitoringKind,
    MonitoringServer,
    ScrapedService,
    api_root,
    command_for,
    identify,
    kind_of_page,
)
from tests.cli import pages
from tests.cli.running import Outcome, run
from tests.collectors.prometheus.serving import FakeClock, page, served
from tests.collectors.promql.history import openmetrics
from tests.collectors.promql.real import PATIENCE, prometheus
from tests.incident.test_prometheus_to_incident import alertmanager, free_place, running
from tests.waiting import comes_about


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(apart: Path) -> None:
    """The tests read and write nothing of the user."""


@pytest.fixture(scope="module")
def triton() -> Iterator[str]:
    with served(page(pages.counting())) as url:
        yield url


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory, triton: str) -> Iterator[str]:
    """A Prometheus that scrapes a Triton."""
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus(folder, openmetrics(), scrape={"checkout": triton.removeprefix("http://")}) as url:
        assert comes_about(lambda: bool((found := identify(url)) and found.services), PATIENCE)
        yield url


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("alertmanager")
    (folder / "config.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    place = free_place()
    command = [alertmanager(), f"--config.file={folder / 'config.yml'}", f"--storage.path={folder / 'data'}"]
    command += [f"--web.listen-address={place}", "--cluster.listen-address="]
    with running(command, "Listening on", folder / "log"):
        yield f"http://{place}"


def test_a_prometheus_and_what_it_scrapes(metrics: str, triton: str) -> None:
    found = identify(f"{metrics}/metrics")
    assert found is not None
    assert (found.kind, found.url, found.problem) == (MonitoringKind.PROMETHEUS, metrics, "")
    assert found.version.startswith("2.")
    assert found.services == (ScrapedService("checkout", triton.removeprefix("http://"), ("Triton",)),)
    assert found.command == f"latdoctor diagnose --prometheus {metrics}"


def test_an_alertmanager(alerts: str) -> None:
    found = identify(alerts)
    assert found is not None
    assert (found.kind, found.url) == (MonitoringKind.ALERTMANAGER, alerts)
    assert found.version


def test_an_inference_server_is_neither(triton: str) -> None:
    assert identify(triton) is None
    assert identify("http://127.0.0.1:1") is None


def test_diagnose_of_a_prometheus_names_the_command(metrics: str, triton: str) -> None:
    outcome = run(["diagnose", "--server", metrics, "--no-nvml", "--window", "1s"])
    assert (outcome.code, outcome.out) == (1, "")
    assert f"latdoctor: {metrics} is a Prometheus server 2." in outcome.err
    assert f"it scrapes checkout {triton.removeprefix('http://')} (Triton)" in outcome.err
    assert f"next: latdoctor diagnose --prometheus {metrics}\n" in outcome.err
    answer = run(["diagnose", "--prometheus", metrics, "--since", "1min", "--window", "20s"])
    assert answer.code in (0, 3, 4), answer.err


def test_diagnose_of_an_alertmanager_names_the_command(alerts: str) -> None:
    outcome = run(["diagnose", "--server", alerts, "--no-nvml", "--window", "1s"])
    assert (outcome.code, outcome.out) == (1, "")
    assert f"{alerts} is an Alertmanager 0." in outcome.err
    assert "latdoctor listen" in outcome.err


def test_one_page_of_it_is_enough(metrics: str) -> None:
    clock = FakeClock()
    found = READER.collect(CollectRequest(servers=(metrics,), window=10.0), clock)
    assert (len(found.artifacts), clock.slept) == (1, [])
    gap = READER.parse(found.artifacts).gaps[0]
    assert "the metrics of a Prometheus server itself" in gap.reason


def test_beside_another_source_it_is_a_gap_with_the_command(metrics: str, triton: str) -> None:
    given = ["diagnose", "--server", metrics, "--server", triton, "--window", "1s", "--no-nvml", "-o", "json"]
    document = json.loads(run(given).out)
    gap = next(one for one in document["gaps"] if "Prometheus server" in one["reason"])
    assert gap["next_step"] == f"latdoctor diagnose --prometheus {metrics}"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, metrics: str, alerts: str, triton: str) -> None:
    """This machine has these three servers and no other."""
    places = [url.removeprefix("http://") for url in (metrics, alerts, triton)]
    monkeypatch.setattr(discovery, "_listening", lambda proc: (places, []))
    module = importlib.import_module("latdoctor.collectors.prometheus.discovery")
    monkeypatch.setattr(module, "discover", lambda: discovery.discover_pages().found)


@pytest.mark.usefixtures("local")
def test_targets_lists_them(metrics: str, alerts: str, triton: str) -> None:
    outcome = run(["targets"])
    assert outcome.code == 0
    assert outcome.out.startswith("1 server on this machine, 1 service behind a Prometheus here\n")
    assert f" Triton            {triton}/metrics\n" in outcome.out
    assert f"  {metrics}\n     scrapes 1 inference service: checkout" in outcome.out
    assert f"     latdoctor diagnose --prometheus {metrics}\n" in outcome.out
    assert f"  {alerts}\n" in outcome.out
    _fits(outcome)
    document = json.loads(run(["targets", "-o", "json"]).out)
    assert {one["kind"]: one["url"] for one in document["monitoring"]} == {
        "prometheus": metrics,
        "alertmanager": alerts,
    }
    assert [one["job"] for server in document["monitoring"] for one in server["services"]] == ["checkout"]


@pytest.mark.usefixtures("local")
def test_preflight_lists_them(metrics: str, alerts: str) -> None:
    outcome = run(["preflight"])
    words = " ".join(outcome.out.split())
    assert "+ Prometheus server 2." in words
    assert "scrapes 1 inference service: checkout" in words
    assert f"latdoctor diagnose --prometheus {metrics}" in words
    assert f"{alerts}: forwards alerts" in words
    assert "unknown" not in outcome.out
    _fits(outcome)
    rows = {row["what"].split(" ")[0]: row for row in json.loads(run(["preflight", "-o", "json"]).out)["sources"]}
    assert rows["Prometheus"]["command"] == f"latdoctor diagnose --prometheus {metrics}"


def _fits(outcome: Outcome) -> None:
    lines = outcome.out.splitlines()
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize(
    ("families", "kind"),
    [
        (["go_goroutines", "prometheus_build_info"], MonitoringKind.PROMETHEUS),
        (["alertmanager_build_info"], MonitoringKind.ALERTMANAGER),
        (["go_goroutines", "vllm:num_requests_running"], None),
        ([], None),
    ],
)
def test_a_page_by_its_families(families: list[str], kind: MonitoringKind | None) -> None:
    assert kind_of_page(families) == kind


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("localhost:9090", "http://localhost:9090"),
        ("https://me:secret@h/prometheus/metrics?x=1", "https://h/prometheus"),
        ("http://h:9090/api/v1/", "http://h:9090"),
    ],
)
def test_the_root_of_its_api(address: str, root: str) -> None:
    assert api_root(address) == root


def test_of_several_jobs_the_command_selects_the_first() -> None:
    services = tuple(ScrapedService(job, "a:1", ("vLLM",)) for job in ("chat", "chat", "search"))
    command = command_for("http://h:9090", services)
    assert command == "latdoctor diagnose --prometheus http://h:9090 --select '{job=\"chat\"}'"
    assert MonitoringServer(MonitoringKind.PROMETHEUS, "http://h:9090", services=services).command == command


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"status": "success", "data": {}}', b"<html>", b"\xff" * 9])
def test_another_server_is_neither(body: bytes) -> None:
    def anything(handler: object) -> None:
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.send_header("Content-Length", str(len(body)))  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        handler.wfile.write(body)  # type: ignore[attr-defined]

    with served(anything) as url:
        assert identify(url) is None
