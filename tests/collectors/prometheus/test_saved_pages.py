"""Pages saved in files: alone, as first and last, broken, and those of real servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest, CollectResult
from latdoctor.collectors.prometheus import COLLECTOR
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence
from tests.collectors.prometheus.serving import FakeClock

FIRST = """\
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="m",version="1"} 100
nv_inference_request_duration_us{model="m",version="1"} 1000000
nv_inference_first_response_histogram_ms_bucket{model="m",version="1",le="10"} 100
nv_inference_first_response_histogram_ms_bucket{model="m",version="1",le="+Inf"} 100
"""
LAST = FIRST.replace(" 1000000", " 9000000").replace(" 100\n", " 300\n")


def collect(*paths: Path) -> CollectResult:
    return COLLECTOR.collect(CollectRequest(metrics=paths), FakeClock())


def read(*paths: Path) -> Evidence:
    collected = collect(*paths)
    groups = dict.fromkeys(artifact.group for artifact in collected.artifacts)
    parts = [COLLECTOR.parse([a for a in collected.artifacts if a.group == group]) for group in groups]
    return Evidence.merge([*parts, Evidence(gaps=collected.gaps)])


def values(seen: Evidence, subject: str) -> dict[str, object]:
    return {one.signal: one.value for one in seen.readings if one.subject == subject}


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    first, last = tmp_path / "first.prom", tmp_path / "last.prom"
    first.write_text(FIRST, encoding="utf-8")
    last.write_text(LAST, encoding="utf-8")
    return first, last


def test_two_pages_of_one_kind_are_first_and_last_in_the_order_given(saved: tuple[Path, Path]) -> None:
    seen = read(*saved)
    assert values(seen, "model/m@first") == {"latency.mean": 0.04, "latency.past_mean": 0.01, "completion.count": 200.0}
    assert [bucket.count for bucket in seen.distributions[0].buckets] == [200.0, 0.0]
    assert "time between the saved pages" in seen.gaps_by_signal["completion.rate"][0].reason
    assert {subject.id for subject in seen.subjects} == {"server/first", "model/m@first"}


def test_the_wrong_order_is_reported(saved: tuple[Path, Path]) -> None:
    seen = read(*reversed(saved))
    assert "latency.mean" not in values(seen, "model/m@last")
    (gap,) = seen.gaps_by_signal["latency.mean"]
    assert "in the wrong order" in gap.reason
    assert {subject.id for subject in seen.subjects} == {"server/last", "model/m@last"}


def test_pages_with_timestamps_have_rates(tmp_path: Path) -> None:
    paths = []
    for name, content, at in (("a", FIRST, 1_700_000_000_000), ("b", LAST, 1_700_000_010_000)):
        path = tmp_path / f"{name}.prom"
        lines = [line if line.startswith("#") else f"{line} {at}" for line in content.splitlines()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths.append(path)
    assert values(read(*paths), "model/m@a")["completion.rate"] == 20.0


def test_pages_of_different_kinds_are_different_servers(saved: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "gpu.prom"
    other.write_text('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50\n', encoding="utf-8")
    seen = read(saved[0], other)
    assert values(seen, "gpu/0@gpu") == {"gpu.utilization": 0.5}
    assert values(seen, "model/m@first")["latency.mean"] == 0.01


def test_the_path_of_a_file_is_not_shown(saved: tuple[Path, Path]) -> None:
    for artifact in collect(*saved).artifacts:
        assert str(saved[0].parent) not in artifact.source + artifact.name + artifact.group


def test_a_half_line_is_a_gap_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "half.prom"
    path.write_text(FIRST + 'nv_inference_queue_duration_us{model="m",ver', encoding="utf-8")
    seen = read(path)
    assert values(seen, "model/m@half")["latency.mean"] == 0.01
    (gap,) = (one for one in seen.gaps if "could not be read" in one.reason)
    assert "half.prom: line 6 could" in gap.reason
    assert set(gap.signals) == {"queue.time.mean", "queue.time_share"}


def test_an_unknown_exporter_is_named_by_its_families(tmp_path: Path) -> None:
    path = tmp_path / "other.prom"
    path.write_text("# TYPE my_first gauge\nmy_first 1\nmy_second 2\n", encoding="utf-8")
    seen = read(path)
    (gap,) = seen.gaps
    assert not seen.readings
    assert "first families are my_first, my_second" in gap.reason
    assert "docs/contributing.md" in gap.next_step
    assert {"latency.p99", "queue.depth"} <= set(gap.signals)  # else its user is told to give a page
    assert not any(signal.startswith("gpu.") for signal in gap.signals)


def test_files_that_cannot_be_read_are_gaps(tmp_path: Path) -> None:
    collected = collect(tmp_path / "absent.prom", tmp_path)
    assert not collected.artifacts
    assert [gap.reason for gap in collected.gaps] == [
        "absent.prom: there is no such file",
        f"{tmp_path.name}: is a folder",
    ]


@pytest.mark.parametrize(
    ("line", "lacks_quantiles"),
    [
        ('ts_inference_requests_total{model_name="m"} 5', True),
        ('nv_inference_request_success{model="m",version="1"} 5', False),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 50', False),
    ],
)
def test_a_server_whose_kind_has_no_quantiles_says_where_they_are(
    line: str, lacks_quantiles: bool, tmp_path: Path
) -> None:
    path = tmp_path / "page.prom"
    path.write_text(line + "\n", encoding="utf-8")
    told = [gap for gap in read(path).gaps if "reports only the mean of its latency" in gap.reason]
    assert [("latency.p99" in gap.signals, gap.subject) for gap in told] == [(True, None)] * lacks_quantiles
    assert all("gateway in front of it" in gap.next_step for gap in told)


def test_a_page_from_a_pipe_is_read_as_a_file_is(saved: tuple[Path, Path], tmp_path: Path) -> None:
    pipe = tmp_path / "fifo"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # as a shell holds `<(command)`, whose command may have left
    pipe.write_text(FIRST, encoding="utf-8")
    try:
        seen = read(pipe)
    finally:
        os.close(held)
    assert values(seen, "model/m@pipe-fifo") == values(read(saved[0]), "model/m@first")


def test_an_incomplete_pipe_gives_no_page(tmp_path: Path) -> None:
    pipe = tmp_path / "fifo"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)  # a writer that does not go away
    try:
        os.write(held, FIRST.encode())
        collected = COLLECTOR.collect(CollectRequest(metrics=(pipe,), timeout=0.05), FakeClock())
    finally:
        os.close(held)
    assert not collected.artifacts
    (gap,) = collected.gaps
    assert gap.reason == "pipe-fifo: incomplete: no more data within 0.05 s"
    assert "latency.p99" in gap.signals


def test_a_file_that_is_no_page_is_kept_and_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<html></html>", encoding="utf-8")
    collected = collect(path)
    with pytest.raises(SourceError, match="HTML"):
        COLLECTOR.parse(collected.artifacts)


def test_more_files_than_are_read_are_gaps(tmp_path: Path) -> None:
    path = tmp_path / "page.prom"
    path.write_text(FIRST, encoding="utf-8")
    assert len(collect(*[path] * 70).gaps) == 6


# --- pages of real servers -----------------------------------------------------------------------------------------


def test_triton_whose_quantiles_contradict_its_sums(samples: Path) -> None:
    seen = read(samples / "metrics" / "transcribed" / "triton_datadog_densenet.prom")
    densenet = values(seen, "model/densenet_onnx@triton_datadog_densenet")
    assert densenet["latency.mean"] == pytest.approx(0.442655)
    assert densenet["queue.time.mean"] == pytest.approx(145e-6 / 3)
    assert densenet["error.ratio"] == 0.0
    assert not {"latency.p50", "latency.p95", "latency.p99"} & {one.signal for one in seen.readings}
    (gap,) = seen.gaps_by_signal["latency.p99"]
    assert gap.subject == "model/densenet_onnx@triton_datadog_densenet"
    assert "count 3, sum 1.32796e+06" in gap.reason
    assert "quantile 0.999 is 3" in gap.reason
    models = {subject.id for subject in seen.subjects if subject.id.startswith("model/")}
    assert models == {"model/densenet_onnx@triton_datadog_densenet"}  # the seven others answered nothing


def test_triton_as_captured(samples: Path) -> None:
    echo = values(read(samples / "metrics" / "captured" / "triton.prom"), "model/echo@triton")
    assert echo["latency.mean"] == pytest.approx(919271e-6 / 200)
    assert echo["queue.time_share"] == pytest.approx(439113 / 919271)
    assert echo["batch.size.mean"] == 1.0
    assert echo["error.ratio"] == 0.0


def test_an_idle_t4_is_not_throttled(samples: Path) -> None:
    seen = read(samples / "metrics" / "transcribed" / "dcgm_datadog_t4_idle.prom")
    gpu = values(seen, "gpu/0@dcgm_datadog_t4_idle")
    throttle = {signal: value for signal, value in gpu.items() if signal.startswith("gpu.throttle.")}
    assert throttle.pop("gpu.throttle.idle") == 1.0
    assert set(throttle.values()) == {0.0}
    assert len(throttle) == 8
    assert gpu["gpu.memory_used_ratio"] == pytest.approx(8e-6)
    assert gpu["gpu.xid.last"] == 0.0
    assert gpu["gpu.name"] == "Tesla T4"
    assert gpu["gpu.sm_clock"] == 300e6
    assert gpu["gpu.temperature_margin"] == 68.0
    # The page was put together from two hosts with two drivers.
    assert "460.106.00" in seen.gaps_by_signal["gpu.driver_version"][0].reason
    for absent in ("gpu.sm_active", "gpu.ecc.uncorrectable", "gpu.nvlink.error_rate", "gpu.throttle.thermal_time"):
        assert "not exported" in seen.gaps_by_signal[absent][0].reason


def test_vllm_with_names_of_both_generations(samples: Path) -> None:
    seen = read(samples / "metrics" / "transcribed" / "vllm_datadog_opt125m.prom")
    model = values(seen, "model/facebook/opt-125m@vllm_datadog_opt125m")
    assert model["latency.mean"] == pytest.approx(0.5034303665)
    assert model["prefix_cache.hit_ratio"] == pytest.approx(64 / 117)
    assert model["kv.usage"] == 0.0
    (usage,) = (one for one in seen.readings if one.signal == "kv.usage")
    assert usage.origin.place == "vllm:kv_cache_usage_perc"
    spread = {one.signal: [(b.low, b.high) for b in one.buckets if b.count] for one in seen.distributions}
    assert spread == {
        "latency": [(0.0, 1.0)],
        "ttft": [(0.25, 0.5)],
        "itl": [(0.025, 0.05)],
        "input.length": [(2.0, 5.0)],
        "output.length": [(5.0, 10.0)],
    }
    assert "error.ratio" not in model  # no counter of failures
    assert not any(one.signal == "server.backend" for one in seen.readings)


def test_torchserve_with_trailing_commas_and_families_without_samples(samples: Path) -> None:
    seen = read(samples / "metrics" / "torchserve" / "torchserve_docs_metrics_api.prom")
    model = values(seen, "model/resnet18@torchserve_docs_metrics_api")
    assert model["latency.mean"] == pytest.approx(290371.129e-6 / 3)
    assert model["queue.time.mean"] == pytest.approx(365.21e-6 / 3)
    assert "declared, but without a sample" in seen.gaps_by_signal["error.ratio"][0].reason
    assert not any("could not be read" in gap.reason for gap in seen.gaps)


def test_tensorrt_llm_behind_triton(samples: Path) -> None:
    model = values(read(samples / "metrics" / "trtllm_backend_readme.prom"), "model/tensorrt_llm@trtllm_backend_readme")
    expected = {"queue.depth": 1.0, "requests.running": 0.0, "kv.usage": 0.4875, "kv.blocks": 6239.0}
    expected |= {"requests.scheduled": 1.0, "requests.in_prefill": 1.0, "requests.limit": 512.0, "kv.blocks_used": 1.0}
    assert {signal: model[signal] for signal in expected} == expected


def test_an_exporter_without_a_dialect_is_a_gap(tmp_path: Path) -> None:
    page = tmp_path / "other.prom"
    page.write_text("# TYPE other_things_total counter\nother_things_total 5\n")
    seen = read(page)
    assert not seen.readings
    assert "without a dialect" in seen.gaps[0].reason


def test_every_sample_page_is_read_whole(samples: Path) -> None:
    pages = [*samples.glob("metrics/**/*.prom"), *samples.glob("nvml/*/metrics/*")]
    assert len(pages) >= 8
    for path in pages:
        assert not any("could not be read" in gap.reason for gap in read(path).gaps), path.name


def test_a_bad_line_is_reported_for_its_page(tmp_path: Path) -> None:
    good = "# TYPE nv_inference_request_success counter\n" + 'nv_inference_request_success{model="m",version="1"} 5\n'
    (tmp_path / "a.prom").write_text(good)
    (tmp_path / "b.prom").write_text(good + "nv_inference_count{model=\n")
    request = CollectRequest(metrics=(tmp_path / "a.prom", tmp_path / "b.prom"))
    artifacts = COLLECTOR.collect(request, FakeClock()).artifacts
    told = [gap.reason for gap in COLLECTOR.parse(artifacts).gaps if "could not be read" in gap.reason]
    assert len(told) == 1
    assert told[0].startswith("b.prom: line 3")


def test_a_gauge_of_saved_pages_is_that_of_the_last_and_not_their_mean(tmp_path: Path) -> None:
    paths = [tmp_path / "a.prom", tmp_path / "b.prom"]
    for path, waiting, usage in zip(paths, (0, 90), (0.5, 0.99), strict=True):
        lines = (
            f'vllm:num_requests_waiting{{model_name="m"}} {waiting}',
            f'vllm:kv_cache_usage_perc{{model_name="m"}} {usage}',
        )
        path.write_text("\n".join((*lines, "")), encoding="utf-8")
    seen = values(read(*paths), "model/m@a")
    assert (seen["queue.depth"], seen["kv.usage"]) == (90.0, 0.99)
