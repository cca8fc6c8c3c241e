"""Which processes on a GPU belong to another program than the inference server on it, by their names alone. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from latdoctor.collectors.nvml.samples import GpuProcess

_LEAST = 256 * 2**20  # bytes; monitoring, display and contexts without work hold less
# Names of inference servers and of their workers, as nvidia-smi shows them.
_SERVERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vllm", re.compile(r"\bvllm\b|VLLM::", re.I)),
    ("sglang", re.compile(r"\bsglang", re.I)),
    ("triton", re.compile(r"\btritonserver\b|triton_python_backend_stub|trtllmExecutorWorker")),
    ("tgi", re.compile(r"text-generation-(?:server|launcher)")),
    ("tei", re.compile(r"text-embeddings-(?:router|inference)")),
    ("ollama", re.compile(r"\bollama")),
    ("llama.cpp", re.compile(r"\bllama-(?:server|cli)\b")),
    ("trtllm", re.compile(r"\btrtllm-serve\b")),
    ("tensorflow-serving", re.compile(r"\btensorflow_model_server\b")),
    ("lmdeploy", re.compile(r"\blmdeploy\b")),
    ("torchserve", re.compile(r"\btorchserve\b|model_service_worker\.py")),
)
# An interpreter or a launcher alone may be a worker of any server.
_ANY = re.compile(
    r"^(?:\[?(?:N/A|Not Found|unknown)\]?|-|(?:\S*/)?(?:python|java|node|ray|mpirun|orted|sh|bash)[\d.]*)?$"
    r"|^ray::|nvidia-cuda-mps|nv-hostengine|dcgm-exporter",
    re.I,
)


def foreign_processes(processes: Sequence[GpuProcess]) -> int | None:
    """How many processes beside the server on the GPU hold memory of it; None where the names do not show it.

    Of several servers, the one that holds the most memory counts as the server.
    """
    held: dict[str, float] = defaultdict(float)
    others = unclear = 0
    for process in processes:
        memory = process.memory
        if memory is not None and memory < _LEAST:
            continue
        server = next((name for name, pattern in _SERVERS if pattern.search(process.name or "")), "")
        if server:
            held[server] += memory or 0.0
        elif _ANY.search((process.name or "").strip()):
            unclear += 1
        else:
            others += 1
    foreign = others + max(0, len(held) - 1)
    if not held or (unclear and not foreign):
        return None
    return foreign
