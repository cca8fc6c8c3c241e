"""Xids in the words of monitors of a node: which code, of which GPU; nothing for what is no Xid."""

from __future__ import annotations

import pytest

from latdoctor.collectors.documents.kubernetes.gpu_reports import XidReport, xid_reports

UUID = "GPU-9e27c3d1-6a44-48b9-8c1e-71b0d95f2e33"
KERNEL = "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=python3, Timeout after 6s of waiting for RPC response"
REPORTS = [
    ("SysLogsXIDError", "", f"ErrorCode:79 PCI:0000:9b:00 GPU_UUID:{UUID} Recommended Action=NONE;", [(79, UUID)]),
    ("SysLogsXIDError", "", "ErrorCode:119 PCI:0000:9b:00 Recommended Action=COMPONENT_RESET;", [(119, "0000:9b:00")]),
    ("SysLogsXIDError", "", f"ErrorCode:48 GPU:{UUID} Recommended Action=COMPONENT_RESET;", [(48, UUID)]),
    (
        "SysLogsXIDError",
        "",
        "ErrorCode:48 GPU:0 Recommended Action=NONE;ErrorCode:79 GPU:1 Recommended Action=RESTART_BM;",
        [(48, "0"), (79, "1")],
    ),
    ("", "SysLogsXIDErrorIsNotHealthy", "ErrorCode:31 PCI:0000:3b:00 Recommended Action=NONE;", [(31, "0000:3b:00")]),
    ("XidError", "", "XID79 GPU:0 Recommended Action=RESTART_BM.", [(79, "0")]),
    ("AcceleratedHardwareReady", "NvidiaXID64Error", "", [(64, "")]),
    ("", "NvidiaXID31Warning", f"GPU_UUID:{UUID}", [(31, UUID)]),
    ("", "XidError", KERNEL, [(119, "0000:9b:00")]),
    ("KernelDeadlock", "DockerHung", KERNEL, [(119, "0000:9b:00")]),
    ("SysLogsSXIDError", "", "ErrorCode:12028 NVSWITCH:0 Recommended Action=NONE;", []),
    ("SysLogsXIDError", "SysLogsXIDErrorIsHealthy", "No Health Failures", []),
    ("GpuMemWatch", "GpuMemWatchIsNotHealthy", "ErrorCode:DCGM_FR_FAULTY_MEMORY GPU:0 Recommended Action=NONE;", []),
    ("MemoryPressure", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", []),
]  # fmt: skip


@pytest.mark.parametrize(("check", "reason", "message", "expected"), REPORTS)
def test_a_report_names_its_code_and_its_gpu(
    check: str, reason: str, message: str, expected: list[tuple[int, str]]
) -> None:
    assert [(one.code, one.gpu) for one in xid_reports(check, reason, message)] == expected


def test_a_report_has_the_advice_of_the_catalogue() -> None:
    fields = XidReport(79, "0000:9b:00").fields
    assert (fields["code"], fields["pci"], fields["needs"], fields["secondary"]) == (79.0, "0000:9b:00", "node", 0.0)
