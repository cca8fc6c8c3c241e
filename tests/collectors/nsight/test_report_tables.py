"""Tables of `nsys stats` and nvprof, in the forms in which they have been printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import SourceError
from latdoctor.evidence.model import AT_LEAST
from tests.collectors.nsight.synthetic_exports import parsed
from tests.collectors.seen import hidden, readings, values

API = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
KERNELS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
SIZES = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
COPIES = "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
STATS = (
    "Generating SQLite file report.sqlite from report.nsys-rep\n"
    "Processing [report.sqlite] with [/opt/nsys/reports/cuda_api_sum.py]...\n"
    + API
    + "65.1,1417580893,293,4838160.0,2514360.0,6311,125393723,9731274.4,cuMemcpyHtoD_v2\n"
    + "5.9,129261717,450,287248.3,50235.0,813,56856173,3507653.0,cuMemAlloc_v2\n"
    + "3.0,60000000,3000,20000.0,5000.0,813,56856173,3507653.0,cudaLaunchKernel_v7000\n"
    + "1.0,20000000,100,20000.0,5000.0,813,56856173,3507653.0,cuLaunchKernel\n"
    + "\nProcessing [report.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...\n"
    + KERNELS
    + '70.0,30000000,3000,10000.0,9000.0,12000,56856173,0.0,"void gemm<float, 4>(float*, int)"\n'
    + "30.0,400000,100,4000.0,4000.0,3000,8000,0.0,add\n"
    + "\n"
    + COPIES
    + "90.0,50000000,40,1.0,1.0,1,1,0.0,[CUDA memcpy Host-to-Device]\n"
    + "\n"
    + SIZES
    + "400.000,40,10.0,10.0,1.0,20.0,0.0,[CUDA memcpy Host-to-Device]\n"
)
NVPROF = """==4711== NVPROF is profiling process 4711, command: ./serve
==4711== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,ms,
"GPU activities",61.5,123.0,1000,123.0,60.0,0.2,"void gemm<float>(float*, int)"
"GPU activities",1.5,3.0,500,6.0,5.0,0.009,"add"
"GPU activities",37.0,74.0,20,3700.0,1.0,9.0,"[CUDA memcpy HtoD]"
"API calls",50.0,100.0,1500,66.0,5.0,30.0,"cudaLaunchKernel"
"API calls",10.0,20.0,12,1666.0,5.0,9.0,"cudaMalloc"
"""


def test_sums_of_nsys_stats() -> None:
    found = parsed(STATS.encode())
    seen = values(found)
    assert seen["launch.count"] == 3100
    assert readings(found)["launch.count"].origin.place == "3000 cudaLaunchKernel, 100 cuLaunchKernel"
    assert seen["alloc.device_calls"] == 450, "the driver's names count as well"
    assert seen["alloc.api_share"] == pytest.approx(129261717 / (1417580893 + 129261717 + 80000000))
    assert seen["trace.kernels"] == 3100
    assert seen["kernel.duration.mean"] == pytest.approx(30.4e-3 / 3100)
    assert seen["kernel.tiny_ratio"] == pytest.approx(100 / 3100)
    assert seen["copy.bytes"] == 400e6
    assert seen["copy.bandwidth"] == pytest.approx(8e9)
    assert {"gpu.busy_ratio", "alloc.device_rate", "sync.time_share", "cuda.error_calls"} <= hidden(found)


def test_a_name_with_kernels_on_both_sides_gives_a_bound() -> None:
    text = KERNELS + "70.0,30000000,3000,10000,9000,2000,56856173,0,mixed\n30.0,400000,1000,400,400,300,800,0,short\n"
    found = readings(parsed(text.encode()))["kernel.tiny_ratio"]
    assert (found.value, found.bound) == (0.25, AT_LEAST)


def test_units_below_the_head_of_nvprof() -> None:
    seen = values(parsed(NVPROF.encode()))
    assert seen["trace.kernels"] == 1500
    assert seen["kernel.duration.mean"] == pytest.approx(126e-3 / 1500)
    assert seen["kernel.tiny_ratio"] == pytest.approx(500 / 1500)
    assert seen["alloc.device_calls"] == 12
    assert seen["alloc.api_share"] == pytest.approx(20 / 120)


TRACE = "Start (ns),Duration (ns),Device,Strm,Name\n1000,500,0,7,add\n2000,500,0,7,add\n"
CUT = {
    "nsys, within a row": STATS[: STATS.rindex(",0.0,[CUDA")],
    "nsys, within the first cell": STATS[: STATS.rindex("00.000,40")],
    "nsys, within a quoted name": STATS[: STATS.index(" 4>(float")],
    "nvprof": NVPROF[: NVPROF.rindex(",9.0,")],
    "nvprof, within its kind": NVPROF[: NVPROF.rindex("calls") + 2],
    "single events": TRACE[:-8],
}


@pytest.mark.parametrize("text", CUT.values(), ids=CUT)
def test_a_cut_row_is_told(text: str) -> None:
    for ending in ("", "\n"):
        (gap,) = (gap for gap in parsed((text + ending).encode()).gaps if "cut off" in gap.reason)
        assert gap.subject
        assert gap.next_step


WHOLE = [STATS, STATS.rstrip(), STATS + "\nDone, all of it\n", TRACE, NVPROF, NVPROF + "==4711== done, 2 warnings\n"]


@pytest.mark.parametrize("text", WHOLE)
def test_a_whole_file_is_not_called_cut(text: str) -> None:
    assert not [gap for gap in parsed(text.encode()).gaps if "cut off" in gap.reason]


def test_old_heads_have_no_units() -> None:
    text = "Time(%),Total Time (ns),Calls,Average,Minimum,Maximum,Name\n50.0,5000,10,500,1,9,cudaMalloc_v3020\n"
    assert values(parsed(text.encode()))["alloc.device_calls"] == 10


def test_thousands_separators_of_the_text_form() -> None:
    text = API + '50.0,"1,417,580,893","1,293",1,1,1,1,1,cudaLaunchKernel_v7000\n'
    assert values(parsed(text.encode()))["launch.count"] == 1293


def test_single_events_are_analysed_as_a_trace() -> None:
    head = "Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
    rows = [f"{n * 100000},50000,{n},1,,,,,NVIDIA L4 (0),1,7,gemm<float, 4>" for n in range(40)]
    rows.append("4100000,50000,41,,4.0,80,Pageable,Device,NVIDIA L4 (0),1,7,[CUDA memcpy Host-to-Device]")
    seen = values(parsed((head + "\n".join(rows)).encode()))
    assert seen["trace.kernels"] == 40
    assert seen["gpu.busy_ratio"] == pytest.approx(0.506, abs=0.01)
    assert seen["copy.bytes"] == 4e6
    assert seen["copy.pageable_share"] == 1


@pytest.mark.parametrize("text", ["", "hello\n", "a,b,c\n1,2,3\n", API, "==1== nothing\n", '"' * 1000, "\x00" * 300])
def test_no_table_is_told(text: str) -> None:
    with pytest.raises(SourceError, match="no table"):
        parsed(text.encode())


def test_a_report_of_nsight_itself_is_told() -> None:
    with pytest.raises(SourceError, match="only its own tools"):
        parsed(b"\x01\x00NVIDIA Nsight Systems Report\x00" + b"\x00" * 100)


@given(st.text(alphabet=st.sampled_from(list('0123456789.,"\n%() []eE-nsTimeNa')), max_size=600))
def test_any_rows_give_a_result_or_an_error(tail: str) -> None:
    for head in (API, KERNELS, SIZES, NVPROF):
        try:
            found = parsed((head + tail).encode())
        except SourceError:
            continue
        assert found.gaps


@pytest.mark.parametrize("magic", [b"NVIDIA Nsight Systems\x00\x01", b"NVIDIA Tegra Profiler Report\x00\x01"])
def test_a_report_itself_is_refused_with_the_command_that_exports_it(magic: bytes) -> None:
    with pytest.raises(SourceError, match="only its own tools read") as refused:
        parsed(magic + bytes(500))
    assert "nsys export --type sqlite" in refused.value.next_step


def test_calls_of_the_operating_system_are_no_calls_of_cuda() -> None:
    seen = values(parsed((API + "99,900,1,1,1,1,1,0,poll\n1,10,5,2,2,2,2,0,cudaMalloc\n").encode()))
    assert seen["alloc.api_share"] == 1
