"""Pages that real servers and exporters showed: each is recognised, and read without a value that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.exposition import parse
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence

PAGES = (
    ("metrics/captured/triton.prom", "triton", 5),
    ("metrics/captured/bentoml.prom", "bentoml", 6),
    ("metrics/captured/node-exporter.prom", "node-exporter", 12),
    ("metrics/trtllm_backend_readme.prom", "triton", 8),
    ("metrics/transcribed/dcgm_datadog_t4_idle.prom", "dcgm", 15),
    ("metrics/transcribed/vllm_datadog_opt125m.prom", "vllm", 8),
    ("nvml/nvidia_gpu_exporter/metrics/linux-x86_64__nvidia-h200__590.48.01__load.metrics", "nvidia-gpu-exporter", 40),
    (
        "nvml/nvidia_gpu_exporter/metrics/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__idle.metrics",
        "nvidia-gpu-exporter",
        40,
    ),
)

# This page was put together from two servers: one counted the tokens, the other those of them that it had cached.
MIXED = {"metrics/transcribed/vllm_datadog_opt125m.prom": ["input.cached_share"]}


def read(samples: Path, path: str) -> tuple[str, Evidence]:
    page = parse((samples / path).read_bytes(), path)
    (dialect,) = recognise_dialects(shipped(), [page])
    return dialect.id, read_pages(dialect, [ScrapedPage(page, path, None)], "server/x")


@pytest.mark.parametrize(("path", "dialect", "fewest"), PAGES, ids=[path for path, _, _ in PAGES])
def test_a_page_of_a_real_server(samples: Path, path: str, dialect: str, fewest: int) -> None:
    spoken, seen = read(samples, path)
    assert spoken == dialect
    given = {one.signal for one in (*seen.readings, *seen.distributions)}
    assert len(given) >= fewest, sorted(given)
    shares = [one for one in seen.readings if catalogue()[one.signal].unit.name == "%"]
    odd = [one.signal for one in shares if not (isinstance(one.value, float) and 0 <= one.value <= 1)]
    assert odd == MIXED.get(path, [])


def test_a_loaded_h200(samples: Path) -> None:
    _, seen = read(samples, PAGES[6][0])
    told = {one.signal: one.value for one in seen.readings}
    assert told["gpu.sm_clock_ratio"] == pytest.approx(1.0)
    assert told["gpu.power"] == pytest.approx(627.4)
    assert told["gpu.temperature_margin"] == 35
    assert told["gpu.compute_processes"] == 3
    assert told["gpu.throttle.hw_thermal"] == 0
