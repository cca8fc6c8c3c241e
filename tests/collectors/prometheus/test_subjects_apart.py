"""Things of one name that are not one thing: they keep their own subjects when all evidence is put together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.nvml import collector as nvml
from latdoctor.collectors.nvml.samples import SCHEMA_VERSION, GpuDevice, GpuSample, NvmlRecord, Unavailable
from latdoctor.collectors.prometheus import COLLECTOR
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, to_json
from tests.collectors.prometheus.serving import FakeClock, page, served

NO = Unavailable("not supported")


@dataclass(frozen=True)
class Server:
    """A server of the model `m` that answers `rate` requests per second, each in `milliseconds`."""

    clock: FakeClock
    rate: int
    milliseconds: int

    def page(self) -> bytes:
        done = 100 + self.rate * int(self.clock.time - 1000)
        return (
            f'nv_inference_request_success{{model="m",version="1"}} {done}\n'
            f'nv_inference_request_duration_us{{model="m",version="1"}} {done * self.milliseconds * 1000}\n'
        ).encode()


def merged(request: CollectRequest, clock: FakeClock, *others: Evidence) -> Evidence:
    collected = COLLECTOR.collect(request, clock)
    groups = dict.fromkeys(artifact.group for artifact in collected.artifacts)
    pages = [COLLECTOR.parse([one for one in collected.artifacts if one.group == group]) for group in groups]
    return Evidence.merge([*pages, *others])


def values(seen: Evidence, signal: str) -> dict[str, object]:
    """By subject; each has one."""
    found = [(one.subject, one.value) for one in seen.readings if one.signal == signal]
    assert len(dict(found)) == len(found)
    return dict(found)


def nvml_of_this_machine() -> Evidence:
    """One GPU, `gpu/0`, of which the driver tells the use (25 %) and the power (300 W)."""
    device = GpuDevice(0, "NVIDIA H200", NO, NO, NO, NO, NO, NO, 0)
    sample = GpuSample(1000.0, 0, 0.25, *[NO] * 6, 300.0, *[NO] * 9)
    record = NvmlRecord(SCHEMA_VERSION, "590.48.01", NO, None, (), (device,), (sample,))
    return nvml.READER.parse([Artifact("nvml.json", "nvml", "nvml", "test", 1000.0, to_json(record))])


def test_two_servers_that_serve_one_model_keep_two_subjects() -> None:
    clock = FakeClock()
    with served(page(Server(clock, 20, 40).page)) as quick, served(page(Server(clock, 5, 500).page)) as slow:
        seen = merged(CollectRequest(servers=(quick, slow), window=10.0), clock)
    first, second = quick.removeprefix("http://"), slow.removeprefix("http://")
    assert values(seen, "completion.rate") == {f"model/m@{first}": 20.0, f"model/m@{second}": 5.0}
    assert values(seen, "latency.mean") == {f"model/m@{first}": 0.04, f"model/m@{second}": 0.5}
    assert seen.parents == {
        f"server/{first}": None,
        f"server/{second}": None,
        f"model/m@{first}": f"server/{first}",
        f"model/m@{second}": f"server/{second}",
    }


def test_the_gpu_0_of_an_exporter_is_not_the_gpu_0_of_nvml(tmp_path: Path) -> None:
    path = tmp_path / "far.prom"
    path.write_text('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\nDCGM_FI_DEV_POWER_USAGE{gpu="0"} 650\n', encoding="utf-8")
    seen = merged(CollectRequest(metrics=(path,)), FakeClock(), nvml_of_this_machine())
    assert values(seen, "gpu.utilization") == {"gpu/0@far": 0.5, "gpu/0": 0.25}
    assert values(seen, "gpu.power") == {"gpu/0@far": 650.0, "gpu/0": 300.0}
    assert seen.lineage("gpu/0@far") == ("gpu/0@far", "server/far")
    assert seen.lineage("gpu/0") == ("gpu/0", "node/local")
    hidden = {gap.subject for gap in seen.gaps_by_signal["gpu.temperature"]}
    assert "gpu/0" in hidden  # NVML's own gap
    assert "gpu/0@far" not in hidden
