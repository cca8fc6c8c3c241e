"""Kernel logs in three formats and server logs, with their usual unrelated lines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

KernelMessage = tuple[float, str]  # unix seconds, message


class KernelLogForm(StrEnum):
    """`dmesg -T`, journald's ISO form, or /dev/kmsg."""

    DMESG = "dmesg"
    JOURNAL = "journal"
    KMSG = "kmsg"


class ServerLogForm(StrEnum):
    """Triton's glog lines, or Python's logging."""

    TRITON = "triton"
    PYTHON = "python"


_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class KernelLog:
    """How one machine's kernel log is written."""

    form: KernelLogForm
    host: str
    booted: float

    def text(self, rng: random.Random, messages: Sequence[KernelMessage]) -> bytes:
        lines = []
        sequence = rng.randint(2_000, 9_000)
        for number, (time, message) in enumerate(sorted(messages, key=lambda entry: entry[0])):
            lines.append(self._line(sequence + number, time, message))
        return ("\n".join(lines) + "\n").encode()

    def _line(self, sequence: int, time: float, message: str) -> str:
        stamp = datetime.fromtimestamp(time, UTC)
        uptime = time - self.booted
        if self.form is KernelLogForm.DMESG:
            return f"[{stamp:%a %b} {stamp.day:2d} {stamp:%H:%M:%S %Y}] {message}"
        if self.form is KernelLogForm.JOURNAL:
            return f"{stamp:%Y-%m-%dT%H:%M:%S.%f}+00:00 {self.host} kernel: [{uptime:.6f}] {message}"
        priority = 4 if message.startswith("NVRM: Xid") else 6
        return f"{priority},{sequence},{round(uptime * 1e6)},-;{message}"


def kernel_log(rng: random.Random, host: str, now: float) -> KernelLog:
    return KernelLog(rng.choice(list(KernelLogForm)), host, now - rng.uniform(9, 60) * _DAY)


def neighbours(rng: random.Random, now: float, count: int = 24) -> list[KernelMessage]:
    """Unrelated kernel messages of the last two hours."""
    veth = f"veth{rng.getrandbits(28):07x}"
    cali = f"cali{rng.getrandbits(44):011x}"
    pool = (
        f"eth0: renamed from {veth}",
        f"IPv6: ADDRCONF(NETDEV_CHANGE): {cali}: link becomes ready",
        f"IPv6: ADDRCONF(NETDEV_CHANGE): {veth}: link becomes ready",
        f"docker0: port {rng.randint(1, 9)}({veth}) entered forwarding state",
        f"docker0: port {rng.randint(1, 9)}({veth}) entered disabled state",
        f"device {veth} left promiscuous mode",
        f"perf: interrupt took too long ({rng.randint(3100, 4900)} > {rng.randint(2500, 3090)}), "
        "lowering kernel.perf_event_max_sample_rate to 49750",
        f"TCP: request_sock_TCP: Possible SYN flooding on port {rng.choice((8000, 8001, 9000))}. Sending cookies.",
        "systemd[1]: Starting system activity accounting tool...",
        f'audit: type=1400 audit({now - 4000:.3f}:{rng.randint(300, 900)}): apparmor="STATUS" '
        'operation="profile_replace" profile="unconfined" name="docker-default"',
        f"nvme nvme{rng.randint(0, 3)}: using unchecked data buffer",
        f"EXT4-fs (nvme{rng.randint(0, 3)}n1p1): mounted filesystem with ordered data mode. Quota mode: none.",
        f"hrtimer: interrupt took {rng.randint(4_100, 30_000)} ns",
        "nvidia-uvm: Loaded the UVM driver, major device number 508.",
    )
    return [(now - rng.uniform(20, 7_200), rng.choice(pool)) for _ in range(count)]


def xid(pci: str, code: int, detail: str, pid: int | None = None, process: str = "python3") -> str:
    """The driver's line for an Xid, with or without the process."""
    whose = "pid='<unknown>', name=<unknown>" if pid is None else f"pid={pid}, name={process}"
    return f"NVRM: Xid (PCI:{pci}): {code}, {whose}, {detail}"


@dataclass(frozen=True, slots=True)
class ServerLog:
    """How a server writes its log."""

    form: ServerLogForm
    pid: int

    def text(self, messages: Sequence[tuple[float, str, str]]) -> bytes:
        """`messages` are (unix seconds, level, message); a message of several lines is a traceback."""
        lines = [self._line(*entry) for entry in sorted(messages, key=lambda entry: entry[0])]
        return ("\n".join(lines) + "\n").encode()

    def _line(self, time: float, level: str, message: str) -> str:
        stamp = datetime.fromtimestamp(time, UTC)
        if self.form is ServerLogForm.TRITON:
            return f"{level[0]}{stamp:%m%d %H:%M:%S.%f} {self.pid} {message}"
        return f"{stamp:%Y-%m-%d %H:%M:%S},{stamp.microsecond // 1000:03d} {level} [{self.pid}] {message}"


def server_chatter(rng: random.Random, form: ServerLogForm, now: float, model: str) -> list[tuple[float, str, str]]:
    """Log lines of a healthy server."""
    client = f"10.{rng.randint(0, 9)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
    pool: tuple[str, ...]
    if form is ServerLogForm.TRITON:
        pool = (
            f"model_lifecycle.cc:849] successfully loaded '{model}'",
            f"http_server.cc:4755] HTTP request: 2 /v2/models/{model}/ready",
            "grpc_server.cc:2560] Started GRPCInferenceService at 0.0.0.0:8001",
            "http_server.cc:4727] Started HTTPService at 0.0.0.0:8000",
            f"dynamic_batch_scheduler.cc:288] Starting dynamic-batcher thread for {model} at nice 0...",
        )
    else:
        pool = (
            f'uvicorn.access: {client}:{rng.randint(32768, 60999)} - "POST /v1/completions HTTP/1.1" 200 OK',
            f'uvicorn.access: {client}:{rng.randint(32768, 60999)} - "GET /health HTTP/1.1" 200 OK',
            f"engine: Avg prompt throughput: {rng.uniform(800, 5200):.1f} tokens/s, Running: {rng.randint(9, 60)} reqs",
            f"service: warm-up of {model} done in {rng.uniform(3, 20):.1f} s",
        )
    return [(now - rng.uniform(15, 3_600), "INFO", rng.choice(pool)) for _ in range(16)]
