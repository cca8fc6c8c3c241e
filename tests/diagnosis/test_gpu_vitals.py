"""Vital signs of GPUs out of texts and logs, also where nothing is wrong with them."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import run

TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.85.12    Driver Version: 525.85.12    CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
|   0  Tesla T4            Off  | 00000000:3B:00.0 Off |                    0 |
| N/A   51C    P0    28W /  N/A |   7680MiB / 15360MiB |     40%      Default |
+-------------------------------+----------------------+----------------------+
"""


def answer(tmp_path: Path, text: str) -> str:
    (tmp_path / "x.txt").write_text(text)
    out = run(["diagnose", str(tmp_path / "x.txt")]).out
    assert len(out.splitlines()) <= 24
    return " ".join(out.split())


def test_a_healthy_gpu_has_its_numbers(tmp_path: Path) -> None:
    said = answer(tmp_path, TABLE)
    for part in ("GPU utilization 40 %", "GPU memory 50 % used", "GPU 51 °C", "power 28 W", "Tesla T4"):
        assert part in said, said


def test_several_gpus_show_the_worst_and_their_number(tmp_path: Path) -> None:
    row = "|   1  Tesla T4            Off  | 00000000:3C:00.0 Off |                    0 |\n"
    state = "| N/A   63C    P0    30W /  N/A |   1536MiB / 15360MiB |     80%      Default |\n"
    said = answer(tmp_path, TABLE + row + state)
    for part in ("GPU utilization 80 %", "GPU 63 °C", "2 x Tesla T4"):
        assert part in said, said


def test_a_gpu_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    said = answer(tmp_path, "Failed to initialize NVML: Unknown Error\n")
    assert "NVML fails with an unknown error" in said
    assert "nothing wrong" not in said
    said = answer(tmp_path, "NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n" * 3)
    assert "3 x the driver could not initialize a GPU" in said


def test_collectives_that_time_out_are_said(tmp_path: Path) -> None:
    line = (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=30000) ran for 30007 milliseconds before timing out.\n"
    )
    assert "a collective operation (NCCL) timed out" in answer(tmp_path, line)


def test_an_xid_without_an_address_has_no_empty_name(tmp_path: Path) -> None:
    line = "XidCriticalError: Xid={} on Device={}, the device will go unhealthy."
    for code, device in ((48, "GPU-0a1b2c3d-0000-1111-2222-333344445555"), (62, "MIG-7"), (48, "0")):
        said = answer(tmp_path, f"I1120 10:00:00.000000 1 health.go:159] {line.format(code, device)}\n")
        assert f"GPU {device}: Xid {code} (" in said, said


def test_an_error_that_no_check_judges_is_said(tmp_path: Path) -> None:
    lines = "2026-11-20 10:00:0{} ERROR worker: CUDA error: uncorrectable ECC error encountered\n"
    said = answer(tmp_path, "2026-11-20 10:00:00 INFO start\n" + "".join(map(lines.format, range(1, 4))))
    assert "3 CUDA errors (cudaErrorECCUncorrectable)" in said, said
    assert "nothing wrong" not in said
    assert "no CUDA error" not in said
