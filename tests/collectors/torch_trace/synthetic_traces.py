"""Small traces written by hand for the tests of this folder. Times in µs, as in a trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from latdoctor.collectors.torch_trace import COLLECTOR
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Reading

Json = dict[str, object]


def event(category: str, name: str, ts: float, dur: float | None, **args: object) -> Json:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def kernel(ts: float, dur: float, **args: object) -> Json:
    return event("kernel", "gemm", ts, dur, **({"device": 0, "stream": 7} | args))


def call(name: str, ts: float, dur: float, **args: object) -> Json:
    return event("cuda_runtime", name, ts, dur, **args)


def copy(name: str, ts: float, dur: float, size: float | None = None) -> Json:
    return event("gpu_memcpy", name, ts, dur, device=0, **({} if size is None else {"bytes": size}))


def step(number: int, ts: float, dur: float) -> Json:
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def launched(count: int, every: float = 100.0, dur: float = 50.0, start: float = 0.0) -> list[Json]:
    """`count` kernels, one each `every` µs, each with the launch before it."""
    made: list[Json] = []
    for index in range(count):
        at = start + index * every
        made += [call("cudaLaunchKernel", at, 5.0), kernel(at + 10.0, dur)]
    return made


def document(events: Iterable[Json]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), "traceName": "made"}).encode()


def artifact(content: bytes | Path, source: str = "made.json") -> Artifact:
    return Artifact("torch_trace/made.json", "torch_trace", "made", source, 1.0, content)


def evidence(events: Iterable[Json]) -> Evidence:
    return COLLECTOR.parse((artifact(document(events)),))


def readings(found: Evidence) -> Mapping[str, Reading]:
    """The readings without labels, by signal."""
    return {reading.signal: reading for reading in found.readings if not reading.labels}


def values(found: Evidence) -> Mapping[str, float]:
    return {signal: float(reading.value) for signal, reading in readings(found).items()}


def hidden(found: Evidence) -> set[str]:
    """The signals that some gap hides."""
    return {signal for gap in found.gaps for signal in gap.signals}
