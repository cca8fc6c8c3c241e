"""A server on a machine that has no accelerator computes without one, unless anything speaks of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.case_from_bundle import seen
from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.host import collector as host
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Window
from tests.collectors.host.made_machines import NODE, Files, Machine

PAGES = Path(__file__).parent.parent / "dialects" / "pages" / "vllm"
HERE, ELSEWHERE = "http://127.0.0.1:8000/metrics", "http://10.2.0.7:8000/metrics"
GPU: Files = {
    "/sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
}
UNLISTED: Files = {path: text for path, text in NODE.items() if not path.startswith("/sys/bus/pci")}
FELL_BACK = "2026-11-20 10:00:00 WARNING No CUDA GPUs are available, falling back to CPU\n"


def _backends(folder: Path, machine: Files, source: str | None, log: str) -> list[object]:
    clock = Machine(folder / "root", machine)
    artifacts = list(host.collect(CollectRequest(host=True, window=1.0), clock, folder / "root").artifacts)
    if source:
        for number, name in enumerate(("first.prom", "last.prom")):
            page = (PAGES / name).read_bytes()
            artifacts.append(Artifact(f"prometheus/1-{number:02d}.prom", "prometheus", "1", source, 0.0 + number, page))
    if log:
        artifacts.append(Artifact("logs/server.log", "logs", "server.log", "server.log", 0.0, log.encode()))
    evidence, _ = seen(Bundle(Context("x"), Window(0.0, 1.0), tuple(artifacts)))
    return [one.value for one in evidence.readings if one.signal == "server.backend"]


@pytest.mark.parametrize(
    ("machine", "source", "log", "backends"),
    [
        pytest.param(NODE, HERE, "", ["cpu"], id="no-accelerator"),
        pytest.param(NODE, HERE, "2026-11-20 10:00:00 INFO ready\n", ["cpu"], id="a-log-without-a-word-of-it"),
        pytest.param(NODE | GPU, HERE, "", [], id="a-gpu"),
        pytest.param(UNLISTED, HERE, "", [], id="a-bus-that-cannot-be-listed"),
        pytest.param(NODE, ELSEWHERE, "", [], id="a-server-on-another-machine"),
        pytest.param(NODE, None, "", [], id="no-server"),
        pytest.param(NODE, HERE, FELL_BACK, [], id="a-server-that-wanted-a-gpu"),
    ],
)
def test_a_machine_without_accelerators_computes_on_its_processors(
    machine: Files, source: str | None, log: str, backends: list[object], tmp_path: Path
) -> None:
    assert _backends(tmp_path, machine, source, log) == backends
