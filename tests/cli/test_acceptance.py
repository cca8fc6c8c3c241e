"""What latdoctor must say of real samples: the numbers, not only the words (those stand in golden/)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latdoctor.conditions.evaluator import Facts
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.evaluate import judge
from latdoctor.evidence.model import Evidence, Origin, Reading, Subject
from tests.cli.running import checks, diagnosed, named

HTA = "kineto/hta/"
LENS = "kineto/tracelens/"


def _atom(check: dict[str, Any], signal: str) -> dict[str, Any]:
    (found,) = (atom for atom in check["atoms"] if atom["signal"] == signal)
    assert isinstance(found, dict)
    return found


def test_bert_small_is_bound_by_launches(samples: Path) -> None:
    said = diagnosed("--trace", str(samples / LENS / "h100_gaunernst_bert-small-uncased__1016001.json.gz"), code=0)
    first = said["causes"][0]
    assert (first["id"], first["named"]) == ("framework.launch.bound", True)
    assert "gpu-idle-between-kernels" in first["evidence_for"]
    busy = _atom(checks(said, "fired")["gpu-idle-between-kernels"], "gpu.busy_ratio")
    assert busy["value"] == pytest.approx(0.079, abs=0.001)
    assert "60 kernels" in busy["origin"]["place"]
    assert said["verdict"]["level"] == "warning"


def test_qwen_is_not_accused(samples: Path) -> None:
    said = diagnosed("--trace", str(samples / LENS / "h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"), code=4)
    assert named(said) == []
    assert said["answer"]["kind"] == "none"
    assert said["verdict"]["level"] == "inconclusive"
    assert not [check for check in checks(said, "fired").values() if check["severity"] == "critical"]


def test_alexnet_is_cold_and_its_warm_up_is_no_storm(samples: Path) -> None:
    name = "critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz"
    said = diagnosed("--trace", str(samples / HTA / name))
    first = said["causes"][0]
    assert (first["id"], first["named"]) == ("framework.start.cold", True)
    assert "framework.alloc.storm" not in named(said)
    assert "device-allocations-in-steady-state" not in checks(said, "fired")
    warm_up = checks(said, "fired")["allocations-in-warm-up"]
    assert "allocations-in-warm-up" in first["evidence_for"]
    assert _atom(warm_up, "alloc.warmup_calls")["value"] == 24
    assert "24 device allocations during warm-up took" in warm_up["message"]


def test_a_trace_without_a_gpu_says_so(samples: Path) -> None:
    said = diagnosed("--trace", str(samples / HTA / "cpu_only_rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"), code=4)
    assert named(said) == []
    (gap,) = (gap for gap in said["gaps"] if gap["source"] == "torch_trace")
    assert "no GPU activity" in gap["reason"]
    assert "gpu.busy_ratio" in gap["signals"]


def test_xid_119_is_named_with_code_address_and_action(samples: Path) -> None:
    said = diagnosed("--log", str(samples / "logs" / "gpud" / "dmesg-with-xid-119.log"), code=3)
    assert named(said) == ["infra.gpu.xid-fault"]
    assert said["verdict"]["level"] == "critical"
    finding = checks(said, "fired")["gpu-xid"]
    assert finding["severity"] == "critical"
    assert finding["subjects"] == ["gpu/0000:9b:00"]
    for part in ("Xid 119", "0000:9b:00", "NVIDIA's advice: reset the GPU"):
        assert part in finding["message"]
    assert finding["atoms"][0]["origin"] == {"artifact": "logs/dmesg-with-xid-119.log", "place": "line 3"}


def test_a_quiet_kernel_log_fires_nothing(samples: Path) -> None:
    said = diagnosed("--log", str(samples / "logs" / "gpud" / "kmsg.1.log"), code=4)
    assert checks(said, "fired") == {}
    assert {"gpu-xid", "gpu-fell-off-bus"} <= checks(said, "clear").keys(), "it was searched, and found clean"


def test_a_summary_that_contradicts_itself_gives_no_p99(samples: Path) -> None:
    said = diagnosed("--metrics", str(samples / "metrics" / "transcribed" / "triton_datadog_densenet.prom"), code=4)
    assert not [atom for check in said["checks"] for atom in check["atoms"] if atom["signal"] == "latency.p99"]
    (gap,) = (gap for gap in said["gaps"] if "contradicts itself" in gap["reason"])
    assert "nv_inference_request_summary_us" in gap["reason"]
    assert "latency.p99" in gap["signals"]
    assert "contradicts itself" in checks(said, "not-evaluated")["p99-over-slo"]["reason"]


def test_an_idle_t4_is_not_accused(samples: Path) -> None:
    said = diagnosed("--metrics", str(samples / "metrics" / "transcribed" / "dcgm_datadog_t4_idle.prom"), code=4)
    assert named(said) == []
    assert checks(said, "fired") == {}
    throttling = {"gpu-clocks-cut-by-heat", "gpu-clocks-cut-by-power"}
    assert throttling <= checks(said, "clear").keys(), "300 MHz at idle is no throttling"


@pytest.mark.parametrize("blank", ["9223372036854775794", "2147483632", "NaN"])
def test_a_blank_of_dcgm_is_a_gap_and_no_number(blank: str, tmp_path: Path) -> None:
    page = tmp_path / "dcgm.prom"
    page.write_text(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} 97\nDCGM_FI_DEV_GPU_TEMP{{gpu="0"}} {blank}\n')
    said = diagnosed("--metrics", str(page), "--no-nvml", code=4)
    assert not [atom for check in said["checks"] for atom in check["atoms"] if atom["signal"] == "gpu.temperature"]
    gaps = [gap for gap in said["gaps"] if "gpu.temperature" in gap["signals"]]
    assert any(gap["reason"] and "DCGM_FI_DEV_GPU_TEMP" in gap["reason"] for gap in gaps)


def test_without_the_gpu_library_health_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fail(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", fail)
    said = diagnosed("--nvml", "--window", "0.1s")
    assert said["verdict"]["level"] != "healthy", "inconclusive, where this machine itself is not short of something"
    gaps = [gap for gap in said["gaps"] if gap["source"] == "nvml"]
    assert any("gpu.sm_clock_ratio" in gap["signals"] for gap in gaps)
    assert all(gap["reason"] for gap in gaps)
    (tier,) = (tier for tier in said["tiers"] if tier["name"] == "infrastructure")
    assert tier["seen"] in ("partly", "unseen")
    assert "gpu-clocks-cut" in tier["not_evaluated"]
    (coverage,) = (row for row in said["coverage"] if row["collector"] == "nvml")
    assert coverage["status"] == "failed"


def test_a_server_that_says_it_computes_on_the_cpu_has_no_gpu_findings() -> None:
    """No shipped dialect tells its backend yet, so this is tested from the evidence on, with the shipped rules."""
    told = Reading("server.backend", "server/a", "cpu", Origin("page.prom"))
    evidence = Evidence(subjects=(Subject("server/a"),), readings=(told,))
    judged = {check.id: check for check in judge(rule_loader.shipped(), Facts(evidence, {}, {}, {}), ())}
    for name in ("gpu-clocks-cut", "gpu-clocks-cut-by-heat", "gpu-memory-full", "pcie-link-degraded"):
        assert judged[name].status == "not-applicable"
        assert judged[name].reason
    assert judged["p99-over-slo"].status == "not-evaluated", "its latency still matters"
