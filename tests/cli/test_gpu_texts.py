"""Text about the GPUs of one machine given together: one subject a GPU, one screen, no internal names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.cli.test_one_screen import check

CASES = Path(__file__).parents[1] / "collectors" / "documents" / "cases"
NAMES = ("nvidia-*", "lspci", "dcgmi", "rocm-smi")
TEXTS = sorted(path for name in NAMES for path in CASES.glob(f"{name}/*.txt"))
UUID = "GPU-1b6f2a3c-0d1e-4f5a-8b7c-9d0e1f2a3b4c"
QUERY = f"""
==============NVSMI LOG==============

Timestamp                                 : Sun Feb  1 10:00:00 2026
Driver Version                            : 580.95.05

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA L40S
    GPU UUID                              : {UUID}
    Performance State                     : P0
    Utilization
        GPU                               : 97 %
    Temperature
        GPU Current Temp                  : 71 C
"""
KERNEL = (
    "Feb  1 09:59:00 n1 kernel: usb 1-1: new device\n"
    "Feb  1 10:00:01 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=x, DBE\n"
)
PLUGIN = (
    f"I0201 10:00:02.000001       1 health.go:186] XidCriticalError: Xid=48 on Device={UUID}; marking as unhealthy.\n"
)
TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0     |
|-------------------------------+----------------------+----------------------+
|   0  NVIDIA L40S         Off  | 00000000:3B:00.0 Off |                    0 |
| N/A   71C    P0   300W / 350W |  40000MiB / 46068MiB |     97%      Default |
+-------------------------------+----------------------+----------------------+
"""
LSPCI = """\
3b:00.0 3D controller: NVIDIA Corporation AD102GL [L40S] (rev a1)
	LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM not supported
	LnkSta:	Speed 16GT/s, Width x4 (downgraded)
	Kernel driver in use: nvidia
"""


def test_texts_and_logs_of_one_machine_are_about_one_gpu(tmp_path: Path) -> None:
    texts = {"q.txt": QUERY, "kern.log": KERNEL, "plugin.log": PLUGIN, "smi.txt": TABLE, "pci.txt": LSPCI}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    answer = json.loads(run(["diagnose", str(tmp_path), "-o", "json"]).out)
    subjects = {one["subject"] for one in answer["vitals"]} | {
        subject for check_ in answer["checks"] for subject in check_["subjects"] if check_["status"] == "fired"
    }
    assert {one for one in subjects if one.startswith("gpu/")} == {"gpu/0"}
    fired = {one["id"] for one in answer["checks"] if one["status"] == "fired"}
    assert {"gpu-ecc-xid", "pcie-link-degraded"} <= fired
    check(run(["diagnose", str(tmp_path)]).out)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_answer_to_each_text_fits_one_screen(path: Path) -> None:
    check(run(["diagnose", str(path)]).out)
