"""What a log seems to rule out does not count where another line reports that a GPU cannot be reached."""

from __future__ import annotations

import pytest

from latdoctor.collectors.documents import reader as documents
from latdoctor.collectors.logs import collector as logs
from latdoctor.detectors import derive
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

QUIET = "[    1.000000] usb 1-1: new device\n[    2.000000] EXT4-fs (sda1): mounted filesystem\n"
SERVER = "2026-02-01 10:00:00 INFO ready\n2026-02-01 10:00:01 INFO 200 OK\n"
OF_GPUS = {"log.xid", "log.sxid", "log.gpu_lost", "log.cuda_error", "log.driver_mismatch"}
REPORTS = [
    "[    9.000000] NVRM: GPU 0000:81:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n",
    "[    9.000000] NVRM: GPU0 _kgspIsHeartbeatTimedOut: GSP RM heartbeat timed out\n",
    "2026-02-01 10:00:02 ERROR Failed to initialize NVML: Unknown Error\n",
    "2026-02-01 10:00:02 ERROR cudaGetDeviceCount returned 802 -> system not yet initialized\n",
]
TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.85.12    Driver Version: 525.85.12    CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
|   0  Tesla T4            Off  | 00000000:3B:00.0 Off |                    0 |
| N/A   51C    P0    ERR! /  70W |  14402MiB / 15360MiB |     95%      Default |
+-------------------------------+----------------------+----------------------+
"""


def log(text: str, name: str = "a.log") -> Evidence:
    return logs.READER.parse([Artifact(f"logs/{name}", "logs", name, name, 1.77e9, text.encode())])


def ruled_out(found: Evidence) -> set[str]:
    happened = {one.signal for one in found.events}
    return {signal for signal, _ in found.looked if signal in OF_GPUS} - happened


def test_logs_without_a_report_rule_out() -> None:
    assert ruled_out(derive(Evidence.merge([log(QUIET), log(SERVER, "b.log")]))) == OF_GPUS


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_of_an_unreachable_gpu_withholds_it(report: str) -> None:
    found = derive(Evidence.merge([log(QUIET), log(SERVER, "b.log"), log(report, "c.log")]))
    assert ruled_out(found) == set()
    assert [gap for gap in found.gaps if gap.code == "inconsistent" and OF_GPUS & set(gap.signals)]
    assert "log.oom_kill" in {signal for signal, _ in found.looked}, "that is another matter"
    assert derive(found).looked == found.looked


def test_a_field_that_cannot_be_read_withholds_it() -> None:
    table = documents.parse([Artifact("documents/t.txt", "documents", "t.txt", "t.txt", 1.77e9, TABLE.encode())])
    found = derive(Evidence.merge([log(QUIET), log(SERVER, "b.log"), table]))
    assert ruled_out(found) == set()
    assert "gpu.count_expected" not in found.readings_by_signal


def test_what_was_found_is_still_counted() -> None:
    xid = "[    9.000000] NVRM: Xid (PCI:0000:81:00): 31, pid=1, name=x, MMU Fault\n"
    found = derive(log(QUIET + xid + REPORTS[0]))
    assert ("log.xid", "gpu/0000:81:00") in found.looked
