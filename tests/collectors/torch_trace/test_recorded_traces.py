"""Real traces of others: what a person reads out of them must come out here."""

from __future__ import annotations

import gzip
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.torch_trace import COLLECTOR, disk_spill, event_names, parallel
from latdoctor.collectors.torch_trace import read_traces as reading
from latdoctor.collectors.torch_trace.events import EventArgs, TraceEvent
from latdoctor.collectors.torch_trace.json_stream import KinetoReader
from latdoctor.collectors.torch_trace.name_table import layer_class
from latdoctor.evidence.model import Evidence
from tests.collectors.torch_trace.synthetic_traces import artifact, hidden, readings, values

BERT = "tracelens/h100_gaunernst_bert-small-uncased__1016001.json.gz"
QWEN = "tracelens/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
ALEXNET = "hta/critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz"
CPU_ONLY = "hta/cpu_only_rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"
AMD = "tracelens/torch_compile_triton_trace.json.gz"
OLD = "tb_plugin/test_gpu_metrics_input.json"


def look(samples: Path, name: str) -> Evidence:
    return COLLECTOR.parse((artifact(samples / "kineto" / name, name),))


def test_bert_is_launch_bound(samples: Path) -> None:
    found = look(samples, BERT)
    seen = values(found)
    assert seen["trace.kernels"] == 60
    assert seen["gpu.busy_ratio"] == pytest.approx(0.079, abs=0.0005)
    assert seen["kernel.tiny_ratio"] == pytest.approx(0.97, abs=0.005)
    assert readings(found)["trace.kernels"].origin.place == "60 kernels; 22 cuLaunchKernel, 38 cudaLaunchKernel*"
    assert seen["launch.count"] == 60
    assert seen["alloc.device_rate"] == 0


def test_qwen_is_bound_by_the_gpu(samples: Path) -> None:
    seen = values(look(samples, QWEN))
    assert seen["trace.kernels"] == 1465
    assert seen["gpu.busy_ratio"] == pytest.approx(0.919, abs=0.0005)
    assert seen["sync.time_share"] > 0.3  # cudaDeviceSynchronize took 14 ms …
    assert seen["sync.idle_share"] < 0.05  # … and only waited for real work
    assert seen["alloc.device_rate"] == 0


def test_launches_wait_behind_others_only_where_the_gpu_is_busy(samples: Path) -> None:
    launch_bound, busy = (values(look(samples, name)) for name in (BERT, QWEN))
    assert launch_bound["launch.queued_share"] == 0
    assert launch_bound["launch.delay.median"] == pytest.approx(6.6e-6, rel=0.02)
    assert busy["launch.queued_share"] == pytest.approx(0.98, abs=0.005)
    assert busy["launch.queue_wait.median"] > 100 * busy["launch.delay.median"]


@pytest.mark.parametrize("name", [BERT, QWEN, ALEXNET, OLD])
def test_layers_are_those_that_a_search_through_all_events_finds(samples: Path, name: str) -> None:
    content = (samples / "kineto" / name).read_bytes()
    events = [one for batch in KinetoReader(content, name).batches() for one in batch if one.ph == "X"]
    whole = sum(one.dur or 0.0 for one in events if (one.cat or "").lower() == "kernel")
    shares = {layer: time / whole for layer, time in by_layer(events).items() if time >= 0.01 * whole}
    seen = look(samples, name).readings
    told = {one.labels[0][1]: one.value for one in seen if one.signal == "layer.gpu_share"}
    assert told == {layer: pytest.approx(shares[layer]) for layer in told}
    assert len(told) == min(5, len(shares))
    assert sum(map(float, told.values())) == pytest.approx(sum(sorted(shares.values())[-5:]))


def by_layer(events: list[TraceEvent]) -> Counter[str]:
    """µs of kernels by the innermost module, else the outermost operator, around the operator with their id."""
    operators = [one for one in events if (one.cat or "").lower() in event_names.OPERATORS and one.dur is not None]
    modules = [one for one in events if (one.name or "").startswith(event_names.LAYER_PREFIX)]
    by_id: dict[object, TraceEvent] = {}
    for one in sorted(operators, key=lambda one: one.ts or 0.0):
        by_id.setdefault(link(one), one)
    found: Counter[str] = Counter()
    for kernel in events:
        owner = by_id.get(link(kernel)) if (kernel.cat or "").lower() == "kernel" else None
        if owner is not None:
            inner = max(around(owner, modules), key=lambda one: (one.ts or 0.0, -(one.dur or 0.0)), default=None)
            outer = min(around(owner, operators), key=lambda one: (one.ts or 0.0, -(one.dur or 0.0)))
            layer = outer.name if inner is None else layer_class(inner.name or "")
            found[layer or ""] += kernel.dur or 0.0  # type: ignore[assignment]  # a Counter of times
    return found


def link(event: TraceEvent) -> object:
    args = event.args or EventArgs()
    told = args.link if args.link is not None else args.old_link
    return id(event) if told is None else told


def around(inner: TraceEvent, events: list[TraceEvent]) -> list[TraceEvent]:
    """Those on its thread that were going on when it began; of two that began together the longer one."""
    at, until = inner.ts or 0.0, (inner.ts or 0.0) + (inner.dur or 0.0)
    spans = [((one.ts or 0.0), (one.ts or 0.0) + (one.dur or 0.0), one) for one in events if one.tid == inner.tid]
    inside = [one for start, end, one in spans if start <= at < end and (start < at or end >= until)]
    return [*inside, *([inner] if inner in events and inner not in inside else [])]


def test_alexnet_is_a_cold_start_and_no_storm(samples: Path) -> None:
    found = look(samples, ALEXNET)
    seen = values(found)
    assert seen["alloc.device_calls"] == 24
    assert seen["alloc.warmup_calls"] == 24
    assert seen["alloc.warmup_time"] == pytest.approx(1.98, abs=0.01)
    assert "24 of 24 in the warm-up" in readings(found)["alloc.warmup_calls"].note
    assert {"alloc.device_calls_steady", "alloc.device_rate", "alloc.device_time_share"} <= hidden(found)
    assert seen["gpu.busy_ratio"] == pytest.approx(0.001, abs=0.0005)
    assert seen["launch.first_duration"] == pytest.approx(3.06, abs=0.01)
    assert seen["start.context_init"] > 6
    assert "cudaFree 6.01 s" in readings(found)["start.cold_time"].origin.place
    assert seen["start.cold_time"] == pytest.approx(42.2, abs=0.1)
    assert seen["start.cold_share"] > 0.9
    assert seen["copy.pageable_share"] == 1


def test_a_trace_of_the_cpu_alone_cannot_tell(samples: Path) -> None:
    found = look(samples, CPU_ONLY)
    assert values(found).keys() == {"trace.has_gpu", "trace.span"}
    assert values(found)["trace.has_gpu"] == 0
    assert {"gpu.busy_ratio", "kernel.tiny_ratio", "alloc.device_calls"} <= hidden(found)
    [gap] = found.gaps
    assert "cannot tell" in gap.reason
    assert gap.next_step


def test_an_amd_trace_names_hip_calls_only(samples: Path) -> None:
    found = look(samples, AMD)
    assert readings(found)["launch.count"].origin.place == "7 hipExtModuleLaunchKernel, 5 hipModuleLaunchKernel"
    assert not any("cuda" in (r.origin.place + r.note).lower() for r in found.readings)


def test_old_category_names_are_understood(samples: Path) -> None:
    seen = values(look(samples, OLD))
    assert (seen["trace.kernels"], seen["launch.count"], seen["copy.bytes"]) == (30, 30, 768)


def test_every_sample_reads(samples: Path) -> None:
    class Clock:
        now = staticmethod(time.time)
        sleep = staticmethod(time.sleep)

    folders = tuple(sorted((samples / "kineto").iterdir()))
    found = COLLECTOR.collect(CollectRequest(traces=folders), Clock())
    assert not found.gaps
    assert len(found.artifacts) == len(list((samples / "kineto").rglob("*.json*"))) >= 10
    for one in found.artifacts:
        seen = COLLECTOR.parse((one,))
        assert values(seen)["trace.span"] > 0
        assert not values(seen).keys() & hidden(seen)


@pytest.mark.parametrize("name", [BERT, ALEXNET, CPU_ONLY, AMD, OLD])
@pytest.mark.parametrize("piece", [4096, 1 << 16])
def test_the_stream_gives_what_the_whole_gives(samples: Path, name: str, piece: int) -> None:
    class Whole(msgspec.Struct):
        events: list[TraceEvent] = msgspec.field(name="traceEvents")

    content = (samples / "kineto" / name).read_bytes()
    plain = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    reader = KinetoReader(content, name, piece=piece)
    assert [one for batch in reader.batches() for one in batch] == msgspec.json.decode(plain, type=Whole).events


def test_every_sample_gives_what_a_decode_of_the_whole_gives(samples: Path) -> None:
    class Whole(msgspec.Struct):
        events: list[TraceEvent] = msgspec.field(name="traceEvents")

    for path in sorted((samples / "kineto").rglob("*.json*")):
        content = path.read_bytes()
        plain = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        expected = msgspec.json.decode(plain, type=Whole).events
        for text in (content, plain):
            for piece in (700, 300_001, 8 << 20):
                reader = KinetoReader(text, path.name, piece=piece)
                assert [one for batch in reader.batches() for one in batch] == expected, (path.name, piece)
                assert reader.damage.count == 0


def test_small_blocks_and_two_processes_change_no_sample(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in temporary files, windows of a few rows, and a border guessed in the middle: the same evidence."""

    def plain(path: Path) -> Path:
        content = path.read_bytes()
        copied = tmp_path / path.name.removesuffix(".gz")
        copied.write_bytes(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
        return copied

    traces = [plain(path) for path in sorted((samples / "kineto").rglob("*.json*")) if path.stat().st_size < 600_000]
    expected = [reading.read_trace(artifact(path), halves=False) for path in traces]
    monkeypatch.setattr(disk_spill, "BLOCK", 100)
    monkeypatch.setattr(disk_spill, "STRIDE", 16)
    monkeypatch.setattr(disk_spill.windows, "__defaults__", (64,))
    monkeypatch.setattr(parallel.likely_border, "__kwdefaults__", {"large": 1, "share": 0.49})
    monkeypatch.setattr(parallel, "processors", lambda: 2)
    for path, known in zip(traces, expected, strict=True):
        for halved in (False, True):
            found = reading.read_trace(artifact(path), halves=halved)
            assert found.gaps == known.gaps
            for one, other in zip(found.readings, known.readings, strict=True):
                assert (one.signal, one.labels, one.note) == (other.signal, other.labels, other.note), path.name
                assert one.value == pytest.approx(other.value, rel=1e-9, abs=1e-12), (path.name, one.signal)
