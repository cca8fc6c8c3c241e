"""The default screens of `preflight` and `targets` as whole texts in golden/; `LATDOCTOR_GOLDEN=write` writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.promql.recognise_monitoring_server import (
    MonitoringKind,
    MonitoringServer,
    ScrapedService,
    watched,
)
from latdoctor.report import preflight, target_list
from latdoctor.report.fit_to_screen import Line
from latdoctor.report.target_list import ConfiguredTarget, FoundServer, TargetList

FOLDER = Path(__file__).parent / "golden"
SERVICES = tuple(ScrapedService(f"chat-{name}", f"10.2.0.{name}:8000", ("vLLM",)) for name in range(1, 7))
PROMETHEUS = MonitoringServer(MonitoringKind.PROMETHEUS, "http://127.0.0.1:9090", "2.42.0", SERVICES)
ALERTMANAGER = MonitoringServer(MonitoringKind.ALERTMANAGER, "http://127.0.0.1:9093", "0.25.0")
NVML = SourceAvailability(
    "NVML (the NVIDIA driver)",
    Availability.NO,
    "nvml shared library not found",
    "see whether `nvidia-smi` answers; in a container, start it with its GPUs (`--gpus all`)",
)
GIVEN = [
    SourceAvailability("traces", Availability.IF_GIVEN, "GPU busy", "export one", option=f"--{name} FILE")
    for name in ("trace", "nsys", "tensorrt", "torch-memory", "log", "changes")
]
PROC = SourceAvailability("/proc", Availability.YES, "processors, memory, load")
PAGE = SourceAvailability(
    "metrics page http://127.0.0.1:8000/metrics",
    Availability.YES,
    "vLLM",
    command="latdoctor diagnose --server http://127.0.0.1:8000/metrics --slo LIMIT",
)


def _monitoring(server: MonitoringServer) -> SourceAvailability:
    command = server.command if server.services else ""
    return SourceAvailability(f"{server.title} {server.url}", Availability.YES, watched(server), "", command=command)


def _targets(configured: int, found: Sequence[FoundServer], *monitoring: MonitoringServer) -> TargetList:
    names = tuple(
        ConfiguredTarget(f"shop-{number}", (f"http://10.1.0.{number}:8002/metrics",)) for number in range(configured)
    )
    return TargetList(names, tuple(found), monitoring)


VLLM, OTHER = FoundServer("http://127.0.0.1:8000/metrics", ("vLLM",)), FoundServer("http://127.0.0.1:9100/metrics", ())
SCREENS: dict[str, Callable[[], Sequence[Line]]] = {
    "preflight-monitoring": lambda: preflight.screen(
        [_monitoring(PROMETHEUS), _monitoring(ALERTMANAGER), NVML, PROC, *GIVEN]
    ),
    "preflight-page": lambda: preflight.screen([PAGE, NVML, PROC, *GIVEN]),
    "preflight-ready": lambda: preflight.screen([PAGE, PROC, *GIVEN]),
    "preflight-many": lambda: preflight.screen([*[NVML] * 20, *GIVEN]),
    "targets-monitoring": lambda: target_list.screen(_targets(0, [VLLM, OTHER], PROMETHEUS, ALERTMANAGER)),
    "targets-prometheus-only": lambda: target_list.screen(_targets(0, [], PROMETHEUS)),
    "targets-none": lambda: target_list.screen(_targets(0, [])),
    "targets-many": lambda: target_list.screen(_targets(30, [VLLM] * 3, PROMETHEUS)),
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str) -> None:
    lines = [line.text for line in SCREENS[name]()]
    path = FOLDER / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
    assert len(lines) <= 24
    assert max(map(cell_len, lines)) <= 80
