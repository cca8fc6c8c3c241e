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
    assert "NVML cannot reach the GPUs" in said
    assert "nothing wrong" not in said
    said = answer(tmp_path, "NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n" * 3)
    assert "driver or the fabric manager is not ready" in said


def test_collectives_that_time_out_are_said(tmp_path: Path) -> None:
    line = (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=30000) ran for 30007 milliseconds before timing out.\n"
    )
    assert "a collective operation (ALLREDUCE) did not end in time (30 s)" in answer(tmp_path, line)


def test_an_xid_without_an_address_has_no_empty_name(tmp_path: Path) -> None:
    line = "XidCriticalError: Xid={} on Device={}, the device will go unhealthy."
    for code, device in ((48, "GPU-0a1b2c3d-0000-1111-2222-333344445555"), (62, "MIG-7"), (48, "0")):
        said = answer(tmp_path, f"I1120 10:00:00.000000 1 health.go:159] {line.format(code, device)}\n")
        assert f"GPU {device}: Xid {code} (" in said, said


def test_an_error_that_no_check_judges_is_said(tmp_path: Path) -> None:
    lines = "2026-11-20 10:00:0{} ERROR worker: CUDA error: peer access is already enabled\n"
    said = answer(tmp_path, "2026-11-20 10:00:00 INFO start\n" + "".join(map(lines.format, range(1, 4))))
    assert "3 CUDA errors (cudaErrorPeerAccessAlreadyEnabled)" in said, said
    assert "nothing wrong" not in said
    assert "no CUDA error" not in said


PMON = """\
# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0       1200     C    64    31     -     -   serve
    1       1300     C    12     4     -     -   train
"""
TOPOLOGY = """\
        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      NV4     PIX     0-7             0
GPU1    NV4      X      SYS     8-15            1
NIC0    PIX     SYS      X
"""
NVLINK = """\
GPU {}: Some GPU (UUID: GPU-0a1b2c3d-0000-1111-2222-33334444555{})
         Link 0: 25 GB/s
         Link 1: {}
         Link 0: CRC Errors: {}
"""
LSPCI = """\
41:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed {}GT/s, Width x{}
\tKernel driver in use: nvidia
"""


def test_processes_and_links_are_said(tmp_path: Path) -> None:
    assert "GPU time by process: serve on GPU 0 64 %, train on GPU 1 12 %" in answer(tmp_path, PMON)
    said = answer(tmp_path, TOPOLOGY)
    assert "slowest connection between GPUs: NV4" in said
    assert "nearest network adapter: SYS" in said


def test_links_that_are_worse_than_they_could_be_are_said(tmp_path: Path) -> None:
    sound = NVLINK.format(0, 0, "25 GB/s", 0)
    said = answer(tmp_path, sound)
    assert "2 NVLinks up on each GPU" in said
    assert "nothing wrong" in said
    said = answer(tmp_path, sound + NVLINK.format(1, 1, "<inactive>", 7))
    for part in ("1 of 2 NVLinks down on GPU 1", "7 NVLink errors on GPU 1", "no cause found"):
        assert part in said, said
    said = answer(tmp_path, LSPCI.format(8, 4))
    for part in ("PCIe with 4 of 16 lanes on GPU 0000:41:00", "PCIe generation 3 of 5", "no cause found"):
        assert part in said, said
    assert "nothing wrong" in answer(tmp_path, LSPCI.format(8, 16)), "an idle link lowers its generation"


def test_a_board_without_bridges_has_no_broken_links(tmp_path: Path) -> None:
    lone = "GPU 0: Some GPU (UUID: GPU-0a1b2c3d-0000-1111-2222-333344445550)\n         Link 0: <inactive>\n"
    assert "NVLinks down" not in answer(tmp_path, lone)


QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Thu Jan 15 02:04:13 2026
Driver Version                            : 550.54.15
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : Some GPU
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : {cap}
        HW Slowdown                       : {slow}
            HW Thermal Slowdown           : {slow}
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    Temperature
        GPU Current Temp                  : 61 C
        Memory Current Temp               : {memory} C
        Memory Max Operating Temp         : 95 C
"""


def test_what_cuts_the_clocks_and_hot_memory_are_said(tmp_path: Path) -> None:
    sound = answer(tmp_path, QUERY.format(cap="Not Active", slow="Not Active", memory=80))
    assert "nothing wrong" in sound
    assert "clocks cut" not in sound
    said = answer(tmp_path, QUERY.format(cap="Active", slow="Active", memory=80))
    for part in ("clocks cut by heat (100 %)", "clocks cut by the power cap (100 %)", "no cause found"):
        assert part in said, said
    hot = answer(tmp_path, QUERY.format(cap="Active", slow="Active", memory=97))
    assert "the GPU's memory is at 97 °C of at most 95 °C" in hot, hot
