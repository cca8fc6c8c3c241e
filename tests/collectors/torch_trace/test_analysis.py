"""What is derived from a trace, on small ones made by hand: cases with the values that a person would count."""

from __future__ import annotations

import json

import pytest

from latdoctor.collectors.torch_trace import COLLECTOR, event_names
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence
from tests.collectors.torch_trace.synthetic_traces import (
    artifact,
    call,
    copy,
    event,
    evidence,
    hidden,
    kernel,
    launched,
    readings,
    step,
    values,
)

MS = 1000.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernel", "launch"),
        ("cudaLaunchKernelExC_v11060", "launch"),
        ("cuLaunchKernelEx", "launch"),
        ("cudaGraphLaunch", "launch"),
        ("cudaLaunchCooperativeKernel", "launch"),
        ("hipExtModuleLaunchKernel", "launch"),
        ("hipGraphLaunch", "launch"),
        ("cudaLaunchHostFunc", "other"),
        ("cuLaunchHostFunc", "other"),
        ("cudaMalloc", "allocate"),
        ("cudaMallocAsync", "allocate"),
        ("cudaMallocManaged", "allocate"),
        ("cuMemAlloc_v2", "allocate"),
        ("cuMemCreate", "allocate"),
        ("cuMemMap", "allocate"),
        ("hipMalloc", "allocate"),
        ("cudaMallocHost", "other"),
        ("cudaHostAlloc", "other"),
        ("cuMemAllocHost_v2", "other"),
        ("cuMemHostAlloc", "other"),
        ("hipHostMalloc", "other"),
        ("cudaFree", "free"),
        ("cudaFreeAsync", "free"),
        ("cudaFreeHost", "other"),
        ("cudaDeviceSynchronize", "synchronise"),
        ("cudaStreamSynchronize", "synchronise"),
        ("cudaEventSynchronize", "synchronise"),
        ("cuCtxSynchronize", "synchronise"),
        ("hipDeviceSynchronize", "synchronise"),
        ("cudaStreamWaitEvent", "other"),
        ("cudaEventQuery", "other"),
        ("cudaMemcpyAsync", "copy"),
        ("cudaMemsetAsync", "copy"),
        ("aten::cudaMalloc", "other"),
        ("", "other"),
    ],
)
def test_kinds_of_calls(name: str, kind: str) -> None:
    assert event_names.kind_of_call(name) == kind


def test_busy_is_the_union_over_streams() -> None:
    seen = values(
        evidence(
            [
                kernel(100.0, 100.0, stream=7),
                kernel(150.0, 100.0, stream=20),  # overlaps: 100..250
                event("gpu_memset", "Memset (Device)", 300.0, 50.0, device=0),  # a fill occupies the GPU too
                copy("Memcpy DtoD (Device -> Device)", 400.0, 50.0, 64),  # a copy does not
                kernel(495.0, 5.0),
                call("cudaLaunchKernel", 90.0, 5.0),
            ]
        )
    )
    assert seen["gpu.busy_ratio"] == pytest.approx((150 + 50 + 5) / 400)
    assert seen["trace.kernels"] == 3
    assert seen["kernel.tiny_ratio"] == pytest.approx(1 / 3)
    assert seen["kernel.duration.mean"] == pytest.approx(205e-6 / 3)
    assert seen["kernel.gap.mean"] == pytest.approx(195e-6 / 2)
    assert seen["copy.time_share"] == pytest.approx(50 / 400)


@pytest.mark.parametrize(
    ("kernels", "copies", "calls", "operators"),
    [("Kernel", "Memcpy", "Runtime", "Operator"), ("kernel", "gpu_memcpy", "cuda_driver", "cpu_op")],
)
def test_old_and_new_categories_mean_the_same(kernels: str, copies: str, calls: str, operators: str) -> None:
    made = [
        event(operators, "ProfilerStep#3", 0.0, 200.0),
        event(calls, "cuLaunchKernel", 1.0, 2.0),
        event(kernels, "gemm", 10.0, 5.0, device=0),
        event(copies, "Memcpy HtoD (Pageable -> Device)", 30.0, 10.0, device=0, **{"Bytes": 1000}),
        event(kernels, "gemm", 90.0, 10.0, device=0),
    ]
    seen = values(evidence(made))
    assert seen["trace.kernels"] == 2
    assert seen["launch.count"] == 1
    assert seen["copy.bytes"] == 1000
    assert seen["copy.pageable_share"] == 1
    assert seen["copy.bandwidth"] == pytest.approx(1000 / 10e-6)
    assert seen["alloc.device_rate"] == 0  # the step was found under its old category


def test_launch_calls_of_every_kind_are_counted_and_named() -> None:
    names = ["cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaGraphLaunch"]
    made = [call(name, 20.0 * at, 4.0 + at) for at, name in enumerate(names)]
    found = evidence([*made, kernel(0.0, 50.0), kernel(50.0, 50.0), kernel(100.0, 100.0)])
    count = readings(found)["launch.count"]
    assert count.value == 5
    assert count.origin.place == "1 cuLaunchKernel, 1 cudaGraphLaunch, 3 cudaLaunchKernel*"
    assert "graph" in count.note
    assert values(found)["launch.api_share"] == pytest.approx((4 + 5 + 6 + 7 + 8) / 200)
    first = readings(found)["launch.first_duration"]
    assert (first.value, first.origin.place) == (pytest.approx(8e-6), "cudaGraphLaunch, 8 µs")


def test_waiting_for_real_work_is_told_from_waiting_for_nothing() -> None:
    busy = values(evidence([kernel(0.0, 100.0), call("cudaDeviceSynchronize", 0.0, 100.0), kernel(100.0, 100.0)]))
    assert busy["sync.time_share"] == pytest.approx(0.5)
    assert busy["sync.idle_share"] == 0
    assert busy["sync.drain_share"] == 0
    idle = values(evidence([kernel(0.0, 50.0), call("cudaDeviceSynchronize", 20.0, 80.0), kernel(150.0, 50.0)]))
    assert idle["sync.time_share"] == pytest.approx(0.4)
    assert idle["sync.idle_share"] == pytest.approx(0.25)
    assert idle["sync.drain_share"] == pytest.approx(0.5)
    assert idle["sync.count_per_kernel"] == 0.5


def test_a_copy_under_a_wait_is_real_work_and_waits_outside_the_kernels_do_not_count() -> None:
    made = [
        call("cudaDeviceSynchronize", 0.0, 50.0),
        kernel(100.0, 100.0),
        copy("Memcpy DtoH (Device -> Pinned)", 200.0, 100.0, 10),
        call("cudaStreamSynchronize", 200.0, 100.0),
        kernel(300.0, 100.0),
        call("cudaDeviceSynchronize", 500.0, 50.0),
    ]
    seen = values(evidence(made))
    assert seen["sync.time_share"] == pytest.approx(1 / 3)
    assert seen["sync.idle_share"] == pytest.approx(0.0)
    assert seen["sync.count_per_kernel"] == 0.5


def test_copies_by_direction_and_memory() -> None:
    made = [
        *launched(2, every=1000.0),
        copy("Memcpy HtoD (Pageable -> Device)", 100.0, 100.0, 3000),
        copy("Memcpy HtoD (Pinned -> Device)", 200.0, 50.0, 6000),
        copy("Memcpy DtoH (Device -> Pinned)", 300.0, 50.0, 1000),
        copy("Memcpy DtoD (Device -> Device)", 1020.0, 10.0, 99),  # under a kernel, and within the device
    ]
    found = evidence(made)
    seen = values(found)
    assert seen["copy.bytes"] == 10_000
    assert seen["copy.pageable_share"] == pytest.approx(0.3)
    assert seen["copy.bandwidth"] == pytest.approx(10_000 / 200e-6)
    assert seen["copy.time_share"] == pytest.approx(200 / 1050)
    sizes = {reading.labels: reading.value for reading in found.readings if reading.signal == "copy.bytes"}
    ways = {"HtoD": 9000, "DtoH": 1000, "DtoD": 99}
    assert sizes == {(): 10_000, **{(("kind", way),): size for way, size in ways.items()}}


def test_copies_that_do_not_tell_their_size_or_memory_are_gaps() -> None:
    unsized = evidence([*launched(2), copy("Memcpy HtoD (Pinned -> Device)", 500.0, 10.0)])
    assert {"copy.bytes", "copy.pageable_share", "copy.bandwidth"} <= hidden(unsized)
    assert "copy.bytes" not in values(unsized)
    unnamed = evidence([*launched(2), copy("CopyHostToDevice", 500.0, 10.0, 50)])
    assert values(unnamed)["copy.bytes"] == 50
    assert hidden(unnamed) & {"copy.bytes", "copy.pageable_share"} == {"copy.pageable_share"}


STORM = [call("cudaMalloc", at * 100.0 + 40.0, 30.0) for at in range(0, 100, 5)]


def test_allocations_all_over_the_trace_give_a_steady_rate() -> None:
    seen = values(evidence([*launched(100), *STORM]))
    assert seen["alloc.device_calls"] == 20
    assert seen["alloc.device_calls_steady"] == 10
    assert seen["alloc.device_rate"] == pytest.approx(10 / 4950e-6, rel=0.01)
    assert seen["alloc.device_time_share"] == pytest.approx(300 / 4950, rel=0.01)
    assert seen["start.cold_time"] == 0


def test_allocations_of_the_first_requests_are_warm_up() -> None:
    early = [call("cudaMalloc", at * 100.0 + 40.0, 30.0) for at in range(40)]
    seen = readings(evidence([*launched(100), *early]))
    assert seen["alloc.device_calls_steady"].value == 0
    assert seen["alloc.warmup_calls"].value == 40
    assert "40 of 40 in the warm-up" in seen["alloc.warmup_calls"].note
    assert "second half" in seen["alloc.device_rate"].note


def test_steady_state_begins_after_the_first_recorded_step() -> None:
    steps = [step(1, 2000.0, 3000.0), step(0, 0.0, 2000.0), step(2, 5000.0, 5000.0)]
    found = readings(evidence([*launched(100), *STORM, *steps]))
    assert found["alloc.warmup_calls"].value == 4
    assert found["alloc.device_calls_steady"].value == 16
    assert "ProfilerStep#0" in found["alloc.device_rate"].note


def test_a_single_step_is_steady_where_others_went_before_it() -> None:
    later = values(evidence([*launched(10), call("cudaMalloc", 500.0, 5.0), step(6, 0.0, 1000.0)]))
    assert later["alloc.device_calls_steady"] == 1
    first = evidence([*launched(10), call("cudaMalloc", 500.0, 5.0), step(0, 0.0, 1000.0)])
    assert "alloc.device_rate" in hidden(first)
    assert values(first)["alloc.warmup_calls"] == 1


COLD = [
    call("cudaFree", 0.0, 2000 * MS),
    *[call("cudaMalloc", (2001 + at) * MS, 0.5 * MS) for at in range(20)],
    call("cudaLaunchKernel", 2100 * MS, 400 * MS),
    kernel(2500 * MS, 20.0),
]


def test_a_cold_start_is_told_from_the_service_in_its_stride() -> None:
    seen = readings(evidence([*COLD, *launched(1200, start=2501 * MS)]))
    assert seen["start.context_init"].value == pytest.approx(2.0)
    assert seen["start.context_init"].origin.place == "cudaFree 2 s"
    assert seen["start.cold_time"].value == pytest.approx(2.41)
    assert seen["start.cold_share"].value == pytest.approx(2.41 / 2.621, rel=0.001)
    assert seen["launch.first_duration"].value == pytest.approx(0.4)
    assert seen["alloc.warmup_calls"].value == 20
    assert seen["alloc.warmup_time"].value == pytest.approx(10e-3)  # without the cudaFree that made the context
    assert seen["alloc.device_calls_steady"].value == 0


def test_where_hardly_anything_follows_the_cold_start_a_steady_state_is_unknown() -> None:
    found = evidence([*COLD, *launched(40, start=2501 * MS)])
    assert {"alloc.device_calls_steady", "alloc.device_rate", "alloc.device_time_share"} <= hidden(found)
    assert "alloc.device_rate" not in values(found)
    assert values(found)["alloc.warmup_calls"] == 20


def test_a_storm_behind_a_cold_start_is_still_seen() -> None:
    storm = [call("cudaMalloc", 2501 * MS + at * 100.0 + 70.0, 20.0) for at in range(0, 1200, 4)]
    seen = values(evidence([*COLD, *launched(1200, start=2501 * MS), *storm]))
    assert seen["alloc.device_calls_steady"] == pytest.approx(150, abs=1)
    assert seen["alloc.device_rate"] > 1000


def test_a_long_launch_while_the_gpu_works_is_no_cold_start() -> None:
    # The launch queue was full: the host waits for the GPU, which is busy all the while.
    made = [*launched(30), kernel(3000.0, 500 * MS), call("cudaLaunchKernel", 3010.0, 490 * MS), kernel(600 * MS, 5.0)]
    assert values(evidence(made))["start.cold_time"] == 0


NO_GPU = {"gpu.busy_ratio", "trace.kernels", "kernel.tiny_ratio", "launch.api_share", "sync.idle_share", "copy.bytes"}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([event("cpu_op", "aten::mm", 0.0, 10.0)], "shows the CPU only"),
        ([event("cpu_op", "aten::mm", 0.0, 10.0), call("cudaLaunchKernel", 1.0, 2.0)], "API calls but no GPU activity"),
        ([event("cuda_profiler_range", "gemm", 0.0, 10.0), call("cudaMalloc", 1.0, 2.0)], "range-profiling mode"),
    ],
)
def test_without_gpu_events_nothing_is_said_about_the_gpu(events: list[dict[str, object]], told: str) -> None:
    found = evidence(events)
    assert values(found)["trace.has_gpu"] == 0
    assert hidden(found) >= NO_GPU
    assert not values(found).keys() & NO_GPU
    reason = next(gap.reason for gap in found.gaps if "gpu.busy_ratio" in gap.signals)
    assert "cannot tell" in reason
    assert told in reason
    assert all(gap.next_step for gap in found.gaps)


def test_kernels_without_api_calls_hide_launches_but_not_the_kernels() -> None:
    found = evidence([kernel(0.0, 10.0), kernel(20.0, 20.0)])
    assert values(found)["gpu.busy_ratio"] == pytest.approx(0.75)
    assert {"launch.count", "alloc.device_calls", "alloc.device_rate", "start.cold_share"} <= hidden(found)


def test_one_kernel_has_no_busy_ratio() -> None:
    found = evidence([kernel(0.0, 10.0), call("cudaLaunchKernel", 0.0, 1.0)])
    assert "gpu.busy_ratio" in hidden(found)
    assert "gpu.busy_ratio" not in values(found)
    assert values(found)["trace.kernels"] == 1


def test_several_devices_are_not_averaged() -> None:
    made = [*launched(20), *[kernel(at * 100.0, 99.0, device=1) for at in range(5)]]
    found = evidence(made)
    assert values(found)["trace.kernels"] == 20
    assert values(found)["gpu.busy_ratio"] == pytest.approx(20 * 50 / 1950)
    assert any("not device 1" in gap.reason for gap in found.gaps)


@pytest.mark.parametrize(
    ("results", "failed"),
    [([0, 0], 0), ([0, 700, 2], 2), (["cudaSuccess", "cudaErrorInvalidValue"], 1), ([600], 0)],
)
def test_return_codes_are_counted_where_they_are_told(results: list[object], failed: int) -> None:
    made = [call("cudaMemcpyAsync", 900.0 + at, 1.0, returnValue=told) for at, told in enumerate(results)]
    assert values(evidence([*launched(5), *made]))["cuda.error_calls"] == failed


def test_without_return_codes_no_word_about_errors() -> None:
    assert "cuda.error_calls" not in values(evidence(launched(5)))


def test_an_amd_trace_is_read_without_a_word_about_cuda() -> None:
    made = [call("hipModuleLaunchKernel", at * 10.0, 2.0, returnValue=0) for at in range(4)]
    found = evidence([*made, call("hipMalloc", 100.0, 5.0), kernel(10.0, 10.0, device=2), kernel(40.0, 10.0, device=2)])
    seen = values(found)
    assert (seen["launch.count"], seen["alloc.device_calls"]) == (4, 1)
    assert "cuda.error_calls" not in seen
    assert not any("cuda" in reading.origin.place.lower() for reading in found.readings)


@pytest.mark.parametrize(
    ("ts", "base", "start"),
    [(1.7e15, None, 1.7e9), (1.2e12, 1_760_000_000_000_000_000, 1_761_200_000.0), (1.2e12, None, None)],
)
def test_the_window_is_unix_time_where_the_trace_tells(ts: float, base: int | None, start: float | None) -> None:
    whole: dict[str, object] = {"traceEvents": [kernel(ts, 10.0), kernel(ts + 1e6, 10.0)]}
    if base is not None:
        whole["baseTimeNanoseconds"] = base
    found = COLLECTOR.parse((artifact(json.dumps(whole).encode()),))
    window = found.readings[0].window
    assert window.start == (None if start is None else pytest.approx(start))
    assert window.seconds is None or window.seconds == pytest.approx(1.00001)


def test_every_signal_is_catalogued_and_either_read_or_hidden() -> None:
    assert catalogue().keys() >= COLLECTOR.provides
    found = evidence([*launched(100), copy("Memcpy HtoD (Pinned -> Device)", 500.0, 10.0, 5)])
    told = {reading.signal for reading in found.readings}
    # Nothing was recorded that could tell these, and nothing is missing where they are not told.
    only_where_told = {"cuda.error_calls", "trace.steps", "kernel.per_step", "step.duration.mean"}
    of_operators = {"operator.gpu_share", "operator.host_time"}
    of_layers = {"layer.host_time", "layer.gpu_share", "layer.operator_share"}
    of_linked_calls = {"launch.queued_share", "launch.queue_wait.median", "launch.delay.median", "launch.delay.p99"}
    unseen = COLLECTOR.provides - told - hidden(found)
    assert unseen == only_where_told | of_operators | of_layers | of_linked_calls
    assert not values(found).keys() & hidden(found)
    assert {reading.subject for reading in found.readings} == {"trace/made"}


def labelled(found: Evidence, signal: str) -> dict[str, float]:
    return {r.labels[0][1]: float(r.value) for r in found.readings if r.signal == signal and r.labels}


def test_gaps_tell_what_the_host_was_in() -> None:
    made = [
        kernel(0.0, 100.0),
        call("cudaDeviceSynchronize", 90.0, 60.0),  # waits for 10 µs of work, then sits there for 50
        call("cudaMalloc", 150.0, 30.0),
        call("cudaLaunchKernel", 180.0, 15.0),
        kernel(200.0, 100.0),
        call("cudaMemcpyAsync", 210.0, 90.0),  # merely waits for the kernel
        kernel(300.0, 100.0),
        kernel(500.0, 100.0),
    ]
    found = evidence(made)
    seen = values(found)
    assert seen["gap.share"] == pytest.approx(200 / 600)
    assert seen["gap.longest"] == pytest.approx(100e-6)
    idle = {"synchronise": 50, "allocate": 30, "copy": 0, "launch": 15, "none": 105}
    assert labelled(found, "gap.host_share") == pytest.approx({kind: time / 600 for kind, time in idle.items()})
    assert seen["copy.call_share"] == seen["copy.call_wait_share"] == pytest.approx(90 / 600)
    assert seen["sync.idle_share"] == pytest.approx(50 / 600)


def test_launch_overhead_counts_every_kind_of_launch_and_all_kernels_of_a_graph() -> None:
    made = [call("cudaGraphLaunch", 0.0, 30.0), call("cuLaunchKernelEx", 40.0, 10.0)]
    seen = values(evidence([*made, *[kernel(100.0 + 20 * at, 10.0) for at in range(20)]]))
    assert seen["launch.count"] == 2
    assert seen["launch.duration.mean"] == pytest.approx(20e-6)
    assert seen["launch.time_per_kernel"] == pytest.approx(2e-6)


def test_kernels_are_counted_for_each_marked_step() -> None:
    seen = values(evidence([*launched(60), step(3, 1000.0, 1000.0), step(4, 2000.0, 1000.0)]))
    assert (seen["trace.steps"], seen["kernel.per_step"]) == (2, 10)
    assert seen["step.duration.mean"] == pytest.approx(1e-3)


def test_the_time_of_kernels_belongs_to_operators_by_their_ids() -> None:
    made = [
        event("cpu_op", "aten::mm", 0.0, 30.0, **{"External id": 7}),
        event("cpu_op", "aten::add", 40.0, 10.0, **{"External id": 8}),
        event("cpu_op", "aten::empty", 60.0, 5.0),
        kernel(100.0, 60.0, **{"External id": 7}) | {"name": "ampere_sgemm_128x64_tn"},
        kernel(160.0, 20.0, **{"External id": 7}) | {"name": "ampere_sgemm_128x64_tn"},
        kernel(180.0, 10.0, **{"External id": 8}) | {"name": "vectorized_elementwise_kernel"},
        kernel(190.0, 10.0, **{"External id": 0}) | {"name": "ncclDevKernel_AllReduce"},
        kernel(500.0, 100.0, **{"External id": 7}, device=1),  # of the device that is not judged
        event("python_function", "nn.Module: Linear_0", 0.0, 90.0),
    ]
    found = evidence(made)
    assert labelled(found, "operator.gpu_share") == pytest.approx({"aten::mm": 0.8, "aten::add": 0.1})
    assert labelled(found, "operator.host_time") == pytest.approx(
        {"aten::mm": 30e-6, "aten::add": 10e-6, "aten::empty": 5e-6}
    )
    assert labelled(found, "kernel.kind_share") == pytest.approx(
        {"matrix product": 0.8, "elementwise": 0.1, "communication": 0.1}
    )
    assert labelled(found, "kernel.time_share")["ampere_sgemm_128x64_tn"] == pytest.approx(0.8)
    assert labelled(found, "layer.host_time") == pytest.approx({"nn.Module: Linear_0": 90e-6})


def test_compilations_after_the_warm_up_are_told_from_those_in_it() -> None:
    early = [event("cpu_op", "_compile.compile_inner (dynamo_timed)", 100.0, 500.0)]
    late = [
        event("cpu_op", "_compile.compile_inner (dynamo_timed)", 8000.0, 1000.0),
        event("cpu_op", "compile_fx.<locals>.fw_compiler_base (dynamo_timed)", 8100.0, 800.0),  # inside the other
        call("cuModuleLoadData", 8500.0, 20.0),
    ]
    found = values(evidence([*launched(100), *early, *late, step(1, 0.0, 2000.0), step(2, 2000.0, 8000.0)]))
    assert (found["compile.trace_steady"], found["code.loads_steady"]) == (1, 1)
    assert found["compile.trace_time_share"] == pytest.approx(1000 / 7960, rel=0.01)


@pytest.mark.parametrize("links", [["7", [1], {"a": 2}, 10**400, None, 1.5, True], [[1, 2]] * 7, [None] * 7])
def test_ids_may_be_anything(links: list[object]) -> None:
    made = [kernel(at * 10.0, 5.0, **{"External id": link}) for at, link in enumerate(links)]
    assert values(evidence(made))["trace.kernels"] == 7


def test_without_operators_nothing_is_said_about_compilations() -> None:
    found = evidence(launched(100))
    assert {"compile.trace_steady", "compile.trace_time_share"} <= hidden(found)
    assert values(found)["code.loads_steady"] == 0
    with_operators = values(evidence([*launched(100), event("cpu_op", "aten::mm", 0.0, 5.0)]))
    assert with_operators["compile.trace_steady"] == 0


def test_numbers_written_as_text_count() -> None:
    """ROCm quotes the size of a copy, and names host memory without its kind."""
    made = launched(30)
    for index in range(20):
        name = "Memcpy HtoD (Host -> Device)"
        made.append(event("gpu_memcpy", name, 70.0 + index * 100, 10.0, device=0, stream="3", bytes="9216"))
    found = evidence(made)
    assert values(found)["copy.bytes"] == 20 * 9216
    assert "copy.pageable_share" not in values(found)
    assert not any("damaged" in gap.reason for gap in found.gaps)
    broken = event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 5000.0, 10.0, device=0, bytes="many")
    assert "copy.bytes" not in values(evidence([*made, broken]))
