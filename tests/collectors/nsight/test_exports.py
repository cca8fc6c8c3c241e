"""Exports of every shape: the signals of a trace come out, and what an export cannot tell is said and not guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.base import CollectRequest
from latdoctor.evidence.model import AT_LEAST
from tests.cli.running import checks, diagnosed, named
from tests.collectors.nsight.synthetic_exports import GRAPHS, MS, PID, SMALL, Export, parsed
from tests.collectors.seen import hidden, readings, values

SCHEMAS = ("schema-2026.2.1.210-export3.25.0.sql", "schema-2026.1.1.204-export3.24.14.sql")


@pytest.fixture(params=[*SCHEMAS, "small"])
def schema(request: pytest.FixtureRequest) -> str:
    if request.param == "small":
        return SMALL
    samples: Path = request.getfixturevalue("samples")
    return (samples / "nsys" / request.param).read_text()


def test_kernels_and_launches_are_read_from_every_schema(schema: str, tmp_path: Path) -> None:
    found = parsed(Export().launched(40).written(tmp_path / "a.sqlite", schema))
    seen = values(found)
    assert seen["trace.kernels"] == seen["launch.count"] == 40
    assert seen["gpu.busy_ratio"] == pytest.approx(20 / 39.5, rel=0.01)
    assert readings(found)["launch.count"].origin.place == "40 cudaLaunchKernel"


def test_a_missing_table_is_no_zero(schema: str, tmp_path: Path) -> None:
    found = parsed(Export().launched(40).written(tmp_path / "a.sqlite", schema))
    assert {"copy.time_share", "copy.bytes", "launch.buffer_full_time"} <= hidden(found)
    assert not values(found).keys() & hidden(found)


def test_the_memory_of_copies_is_told_only_where_it_stands(schema: str, tmp_path: Path) -> None:
    made = Export().launched(40)
    made.copy(MS, 2 * MS, kind=1, size=4096, source=0, target=2)
    made.copy(3 * MS, 4 * MS, kind=2, size=4096, source=2, target=1)
    seen = values(found := parsed(made.written(tmp_path / "a.sqlite", schema)))
    assert seen["copy.bytes"] == 8192
    if schema == SMALL:
        assert "copy.pageable_share" in hidden(found)
    else:
        assert seen["copy.pageable_share"] == 0.5


def test_graphs_hide_kernels_and_count_as_busy(tmp_path: Path) -> None:
    made = Export()
    for number in range(30):
        made.call("cudaGraphLaunch_v10000", number * MS, number * MS + 5000)
        made.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=number * MS, end=number * MS + MS * 9 // 10, deviceId=0)
    found = parsed(made.written(tmp_path / "a.sqlite", SMALL + GRAPHS))
    kernels = readings(found)["trace.kernels"]
    assert (kernels.value, kernels.bound) == (30, AT_LEAST)
    assert values(found)["gpu.busy_ratio"] == pytest.approx(0.9, abs=0.01)
    assert {"kernel.tiny_ratio", "kernel.duration.mean"} <= hidden(found)
    assert any("30 launches of CUDA graphs" in gap.reason and "node" in gap.next_step for gap in found.gaps)


def test_many_launches_of_tiny_kernels_are_named(tmp_path: Path, schema: str) -> None:
    made = Export().launched(400, every=MS // 20, lasts=4000)
    path = made.written(tmp_path / "a.sqlite", schema)
    document = diagnosed("--nsys", str(path))
    assert named(document) == ["framework.launch.bound"]


def failing(tmp_path: Path, samples: Path, calls: list[tuple[str, int, int]]) -> Path:
    made = Export().launched(40)
    for number, (name, result, process) in enumerate(calls):
        made.call(name, 50 * MS + number, 50 * MS + number + 1, result, process << 24 | 1)
    return made.written(tmp_path / "a.sqlite", (samples / "nsys" / SCHEMAS[0]).read_text())


def test_return_codes_are_errors_and_the_first_sticky_one_leads(samples: Path, tmp_path: Path) -> None:
    calls = [("cudaMemcpyAsync_v3020", 700, 1), ("cudaStreamSynchronize_v3020", 700, 1), ("cudaMalloc_v3020", 2, 2)]
    path = failing(tmp_path, samples, calls)
    found = parsed(path)
    assert [(one.fields["code"], one.fields["secondary"]) for one in found.events] == [(700, 0), (700, 1), (2, 0)]
    assert "an illegal memory access" in found.events[0].text
    assert found.looked == (("log.cuda_error", "trace/made"),)
    document = diagnosed("--nsys", str(path))
    assert "infra.driver.cuda-errors" in named(document)
    assert {"cuda-calls-fail", "cuda-context-lost", "cuda-out-of-memory"} <= checks(document, "fired").keys()


def test_probes_and_answers_are_no_errors(samples: Path, tmp_path: Path) -> None:
    calls = [
        ("cudaPointerGetAttributes_v4000", 1, PID),
        ("cudaEventQuery_v3020", 600, PID),
        ("cudaDeviceEnablePeerAccess_v4000", 704, PID),
        ("cuModuleGetFunction", 500, PID),
    ]
    found = parsed(failing(tmp_path, samples, calls))
    assert found.events == ()
    assert found.looked, "it was searched, and none is none"


def test_without_return_codes_nothing_was_searched(tmp_path: Path) -> None:
    found = parsed(Export().launched(40).written(tmp_path / "a.sqlite", SMALL))
    assert found.looked == ()
    assert "cuda.error_calls" in hidden(found)


def test_bytes_and_files_are_read_alike(tmp_path: Path, schema: str) -> None:
    path = Export().launched(40).written(tmp_path / "a.sqlite", schema)
    assert parsed(path.read_bytes()) == parsed(path)


# What a person reads out of the sample files.


def test_a_first_run_on_a_3080(samples: Path) -> None:
    found = parsed(samples / "nsys" / "nsys-ai" / "mock.sqlite")
    seen = values(found)
    assert seen["trace.kernels"] == 2
    assert seen["alloc.device_calls"] == seen["alloc.warmup_calls"] == 1
    assert seen["alloc.warmup_time"] == pytest.approx(0.77e-3, abs=1e-5)
    assert readings(found)["start.context_init"].origin.place == "cudaHostAlloc 3.57 ms"
    assert seen["launch.count"] == 2
    # 17.4 and 17.8 ms, which is the loading of modules
    assert seen["launch.first_duration"] == pytest.approx(17.8e-3, abs=1e-4)
    assert seen["start.module_time"] == pytest.approx(30.7e-3, abs=1e-4)
    assert readings(found)["trace.gpu"].value == "NVIDIA GeForce RTX 3080"
    assert seen["cuda.error_calls"] == 0
    assert found.readings[0].window.start == pytest.approx(1776781227.86, abs=0.01)


@pytest.mark.parametrize("name", ["healthy_1pct", "healthy_judged_1pct"])
def test_a_busy_gpu_gives_no_finding(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    found = parsed(path)
    assert values(found)["gpu.busy_ratio"] == pytest.approx(0.99, abs=0.001)
    document = diagnosed("--nsys", str(path))
    assert checks(document, "fired") == {}
    assert named(document) == []


def test_the_gpu_is_named_by_the_environment_where_it_has_no_table(samples: Path, tmp_path: Path) -> None:
    schema = (samples / "nsys" / SCHEMAS[0]).read_text()
    made = Export().launched(30)
    told = '{"Gpus":[{"Id":0,"Name":"NVIDIA L4"}]}'
    made.add("TARGET_INFO_SYSTEM_ENV", devStateName="x", name="GpuInfo", nameEnum=897, value=told)
    assert readings(parsed(made.written(tmp_path / "a.sqlite", schema)))["trace.gpu"].value == "NVIDIA L4"
    empty = Export().launched(30)
    empty.add("TARGET_INFO_SYSTEM_ENV", devStateName="x", name="GpuInfo", nameEnum=897, value="{}")
    assert "trace.gpu" in hidden(parsed(empty.written(tmp_path / "b.sqlite", schema)))


def test_a_folder_holds_exports_and_tables(samples: Path) -> None:
    class Clock:
        def now(self) -> float:
            return 1.0

        def sleep(self, seconds: float) -> None:
            raise AssertionError

    from latdoctor.collectors.nsight import COLLECTOR

    found = COLLECTOR.collect(CollectRequest(nsight=(samples / "nsys" / "nsys-ai", samples / "absent")), Clock())
    assert [one.group for one in found.artifacts] == ["healthy_1pct", "healthy_judged_1pct", "mock"]
    assert ["does not exist" in gap.reason for gap in found.gaps] == [True]


def real(samples: Path) -> str:
    return (samples / "nsys" / SCHEMAS[0]).read_text()


@pytest.mark.parametrize("inline", [False, True])
def test_ranges_that_repeat_are_steps(samples: Path, tmp_path: Path, inline: bool) -> None:
    made = Export().launched(40)
    made.marked("whole run", 0, 40 * MS)
    for number in range(8):
        begin = number * 5 * MS
        made.marked(f"batch {number}", begin, begin + 5 * MS, inline)
        made.marked("forward", begin + MS, begin + 3 * MS, inline)  # within it: takes less time
    made.marked("aten::mm, seq = 4", 0, 39 * MS)
    made.marked("cuBLAS", 0, MS, domainId=7)
    made.add("NVTX_EVENTS", start=5, end=None, eventType=34, globalTid=1)
    found = parsed(made.written(tmp_path / "a.sqlite", real(samples)))
    seen = values(found)
    assert (seen["trace.steps"], seen["kernel.per_step"]) == (8, 5)
    assert seen["step.duration.mean"] == pytest.approx(5e-3)
    assert "batch # (1)" in readings(found)["alloc.device_rate"].note
    assert not {"trace.steps", "kernel.per_step"} & hidden(found)


@pytest.mark.parametrize(
    "marked",
    [
        [],
        [("forward", 0, 20)],  # once
        [("request", 0, 20), ("request", 10, 30)],  # they overlap
        [("reload", 0, 1), ("reload", 38, 39)],  # seldom
        [("aten::mm", 0, 20), ("aten::mm", 20, 40)],  # operators
    ],
)
def test_ranges_that_are_no_steps_are_not_taken_for_some(
    marked: list[tuple[str, int, int]], samples: Path, tmp_path: Path
) -> None:
    made = Export().launched(40)
    for name, start, end in marked:
        made.marked(name, start * MS, end * MS)
    found = parsed(made.written(tmp_path / "a.sqlite", real(samples)))
    assert {"trace.steps", "kernel.per_step", "step.duration.mean"} <= hidden(found)
    [told] = [gap for gap in found.gaps if "trace.steps" in gap.signals]
    assert ("no NVTX ranges were recorded" in told.reason) == (not marked)


def test_calls_and_kernels_are_linked_within_one_process(samples: Path, tmp_path: Path) -> None:
    made = Export()
    for number in range(20):
        start = number * MS
        for pid in (7, 8):  # the same ids in both
            begin = start + (pid - 7) * MS // 2
            made.call("cudaLaunchKernel_v7000", begin, begin + 5000, tid=pid << 24 | 1, link=number + 1)
            made.kernel(begin + 20_000, begin + 100_000, link=number + 1, pid=pid << 24)
    found = parsed(made.written(tmp_path / "a.sqlite", real(samples)))
    seen = values(found)
    assert seen["launch.queued_share"] == 0
    assert seen["launch.delay.median"] == pytest.approx(20e-6, rel=0.011)
    assert "40 of 40" in readings(found)["launch.delay.median"].origin.place
