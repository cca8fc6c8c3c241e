"""A log with a line that may report a GPU error in unknown words is clear of nothing that the line may report."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs.collector import parse
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode

KERNEL = "[Fri Nov 20 10:00:00 2026] {}\n[Fri Nov 20 10:00:01 2026] EXT4-fs (sda1): mounted\n"
PROGRAM = "2026-11-20 10:00:00 INFO start\n2026-11-20 10:00:01 ERROR {}\n2026-11-20 10:00:02 INFO go on\n"


def read(text: str) -> Evidence:
    return parse([Artifact("logs/x", "logs", "x", "x.log", 1.78e9, text.encode())])


def searched(found: Evidence) -> set[str]:
    return {signal for signal, _ in found.looked}


@pytest.mark.parametrize(
    "line",
    [
        "worker 3: an illegal memory access was encountered",
        "cuMemAlloc failed with 2",
        "cudaStreamSynchronize returned 214",
        "health: uncorrectable ECC error on device 1",
        "device-side assert triggered",
        "the kernel ended with a misaligned address",
    ],
)
def test_a_failed_call_in_other_words_withholds_the_search(line: str) -> None:
    found = read(PROGRAM.format(line))
    assert found.events or "log.cuda_error" not in searched(found)
    assert "log.driver_mismatch" in searched(found), "of which the line says nothing"
    assert found.events or GapCode.AMBIGUOUS in {gap.code for gap in found.gaps}


@pytest.mark.parametrize("line", ["NVRM: Xid (PCI:0000:3b:00) 79, pid=1", "gpu-monitor: Xid error: 48 on GPU 2"])
def test_an_xid_in_another_form_withholds_the_search(line: str) -> None:
    found = read(KERNEL.format(line))
    assert not searched(found) & {"log.xid", "log.gpu_lost"}
    assert "log.oom_kill" in searched(found)


@pytest.mark.parametrize(
    "line",
    [
        'kubelet[70]: "Eviction manager: must evict pod(s) to reclaim" resourceName="memory"',
        "kubelet[70]: Evicted pod web/ranker-0: the node was low on resource: memory",
        "containerd[9]: container 5f0c was OOMKilled",
        "guard[5]: low memory, killing the largest process 77",
    ],
)
def test_a_kill_for_memory_in_other_words_withholds_the_search(line: str) -> None:
    found = read(f"{KERNEL.format('usb 1-1: new device')}Nov 20 10:00:02 box {line}\n")
    assert "log.oom_kill" not in searched(found)
    assert "log.xid" in searched(found)


def test_a_gpu_of_another_maker_that_is_reset_is_not_ruled_out() -> None:
    found = read(KERNEL.format("amdgpu 0000:43:00.0: amdgpu: GPU reset begin!"))
    assert "log.gpu_lost" not in searched(found)


@pytest.mark.parametrize(
    "line",
    ["systemd[1]: Started systemd-oomd.service - Userspace Out-Of-Memory (OOM) Killer.", "a[1]: not evicted: memory"],
)
def test_a_line_about_no_kill_withholds_nothing(line: str) -> None:
    assert "log.oom_kill" in searched(read(f"{KERNEL.format('usb 1-1: new')}Nov 20 10:00:02 box {line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "no uncorrectable ECC errors, no Xid",
        "uncorrectable ECC errors: 0",
        "CUDA error handling is on",
        "Xid errors: 0",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "cudaGetDeviceCount returned 0",
        "SXid 12028 is handled elsewhere",
    ],
)
def test_what_denies_or_mentions_an_error_withholds_nothing(line: str) -> None:
    assert "log.cuda_error" in searched(read(PROGRAM.format(line)))
    assert {"log.xid", "log.gpu_lost"} <= searched(read(KERNEL.format(line)))


def test_a_known_report_beside_it_is_judged_as_before() -> None:
    lines = "CUDA error: an illegal memory access was encountered\n2026-11-20 10:00:01 ERROR illegal memory access"
    found = read(PROGRAM.format(lines))
    assert "log.cuda_error" in searched(found)
    assert len(found.events) == 1
