"""Servers that refuse to start for lack of device memory, in the words of every version."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

GIB = 2.0**30
CASES = [
    (
        "ValueError: Free memory on device (20.5/40.0 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 36.0 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "free-below-reserve",
        {"start.memory_free": 20.5 * GIB, "start.memory_total": 40 * GIB, "start.memory_reserve": 36 * GIB},
    ),
    (
        "ValueError: Free memory on device cuda:1 (20.5/40.0 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 36.0 GiB).",
        "free-below-reserve",
        {"start.memory_free": 20.5 * GIB, "start.memory_total": 40 * GIB, "start.memory_reserve": 36 * GIB},
    ),
    ("ValueError: No available memory for the cache blocks. Try increasing it.", "no-kv-room", {}),
    (
        "ValueError: The model's max seq len (65536) is larger than the maximum number of tokens that can be "
        "stored in KV cache (20480). Try increasing `gpu_memory_utilization`.",
        "sequence-over-kv",
        {"start.sequence_tokens": 65536, "start.kv_tokens": 20480},
    ),
    (
        "ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (2.50 GiB). Based on the available memory,",
        "sequence-over-kv",
        {"start.sequence_tokens": 65536, "start.kv_needed": 8 * GIB, "start.kv_available": 2.5 * GIB},
    ),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "no-kv-room", {}),
    ('error="model requires more system memory (25.3 GiB) than is available (14.2 GiB)"', "host-memory", {}),
    (
        "RuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease it",
        "prefill-over-memory",
        {"start.prefill_tokens": 8192},
    ),
]


def parsed(text: str) -> Evidence:
    return logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, text.encode())])


@pytest.mark.parametrize(("text", "kind", "expected"), CASES)
def test_a_refused_start_is_an_event_with_its_figures(text: str, kind: str, expected: dict[str, float]) -> None:
    found = parsed(f"ERROR 01-31 12:00:00 [core.py:7] {text}")
    (event,) = [one for one in found.events if one.signal == "log.memory_refused"]
    assert (event.subject, event.fields) == ("node/a", {"kind": kind})
    assert {one.signal: one.value for one in found.readings} == expected


def test_each_rank_repeats_the_same() -> None:
    found = parsed("\n".join([CASES[0][0]] * 4))
    assert len(found.readings) == 3
    assert len(found.events) == 4
