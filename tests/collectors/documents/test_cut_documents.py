"""Documents that end in the middle: what is complete is read and said to be a part; where nothing is, it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.documents import cut_json
from latdoctor.collectors.documents.reader import parse
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence
from latdoctor.gap_code import GapCode
from tests.cli.running import run

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\[]{}é', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("kx", max_size=3), inner, max_size=4),
    max_leaves=20,
)


def read(text: str) -> Evidence:
    return parse([Artifact("documents/x", "documents", "x", "x.txt", 1.77e9, text.encode())])


def cuts(found: Evidence) -> list[str]:
    return [gap.reason for gap in found.gaps if gap.code == GapCode.UNREADABLE and "cut in the middle" in gap.reason]


def values(found: Evidence, signal: str) -> dict[str, Any]:
    return {one.subject: one.value for one in found.readings if one.signal == signal}


@given(VALUES, st.integers(0, 3), st.data())
def test_what_is_left_of_a_cut_text_is_json_whose_entries_are_those_of_the_whole(
    value: Any, levels: int, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert not cut_json.is_cut(text)
    begin = text[: data.draw(st.integers(0, len(text) - 1))]
    found = cut_json.complete_entries(begin, levels)
    if found is not None:
        _is_part(json.loads(found.text), value)
        assert found.entries > 0


def _is_part(part: Any, whole: Any) -> None:
    """Every entry of `part` is that of `whole`, but for the last of each list or object on the way to the cut."""
    if isinstance(part, list):
        assert len(part) <= len(whole)
        assert part[:-1] == whole[: max(0, len(part) - 1)]
        if part:
            _is_part(part[-1], whole[len(part) - 1])
    elif isinstance(part, dict):
        names = list(part)
        assert names == list(whole)[: len(names)]
        assert all(part[name] == whole[name] for name in names[:-1])
        if names:
            _is_part(part[names[-1]], whole[names[-1]])
    else:
        assert part == whole


def test_statistics_of_models_are_read_up_to_the_cut() -> None:
    def model(name: str) -> dict[str, Any]:
        part = {"count": 10, "ns": 50_000_000}
        stats = {"success": part, "fail": {"count": 0, "ns": 0}, "queue": part, "compute_infer": part}
        return {"name": name, "version": "1", "last_inference": 1_770_000_000_000, "inference_count": 10,
                "execution_count": 10, "inference_stats": stats, "batch_stats": []}  # fmt: skip

    text = json.dumps({"model_stats": [model("first"), model("second"), model("third")]})
    found = read(text[: text.index('"third"') + 120])
    assert len(values(found, "latency.mean")) == 2
    assert cuts(found) == ["x.txt: statistics of Triton is cut in the middle: 2 entries read"]
    with pytest.raises(SourceError, match=r"is statistics of Triton, cut in the middle") as refused:
        read(text[: text.index('"inference_stats"') + 30])
    assert "COMMAND > FILE" in str(refused.value.next_step)


def test_points_of_a_series_are_read_up_to_the_cut() -> None:
    points = [[1_770_000_000 + 15 * n, str(n % 7)] for n in range(60)]
    series = {"metric": {"__name__": "vllm:num_requests_waiting", "instance": "a:8000"}, "values": points}
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}})
    found = read(text[: text.index("1770000600") + 14])
    assert values(found, "queue.depth")
    assert cuts(found) == ["x.txt: an answer of the Prometheus API is cut in the middle: 40 entries read"]


GPU = """<gpu id="00000000:{bus}:00.0">
  <product_name>Some GPU</product_name><uuid>GPU-{bus}</uuid>
  <fb_memory_usage><total>1000 MiB</total><used>{used} MiB</used></fb_memory_usage>
  <utilization><gpu_util>50 %</gpu_util></utilization>
  <ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable><dram_uncorrectable>7</dram_uncorrectable></volatile>
  </ecc_errors>
  <temperature><gpu_temp>64 C</gpu_temp></temperature>
</gpu>
"""
XML = (
    '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    "<driver_version>550.54</driver_version><attached_gpus>2</attached_gpus>\n"
    f"{GPU.format(bus='3B', used=500)}{GPU.format(bus='5E', used=900)}</nvidia_smi_log>\n"
)


def test_a_gpu_is_read_up_to_the_cut_and_counts_as_none_missing() -> None:
    assert not cuts(read(XML))
    first = read(XML[: XML.index('<gpu id="00000000:5E') + 10])
    assert values(first, "gpu.ecc.uncorrectable") == {"gpu/0": 7}
    assert values(first, "gpu.count") == values(first, "gpu.count_expected") == {}, "the others may be behind the cut"
    second = read(XML[: XML.rindex("dram_unc") - 1])
    assert values(second, "gpu.utilization") == {"gpu/0": 0.5, "gpu/1": 0.5}
    assert values(second, "gpu.ecc.uncorrectable") == {"gpu/0": 7}, "a part of the errors is no sum of them"
    assert cuts(second)[0].endswith("2 GPUs read, the last in part")


@given(st.integers(0, len(XML) - 20))
def test_no_value_of_a_cut_document_differs_from_that_of_the_whole(place: int) -> None:
    whole = {(one.subject, one.signal): one.value for one in read(XML).readings}
    try:
        found = read(XML[:place])
    except SourceError:
        return
    for one in found.readings:
        assert whole[one.subject, one.signal] == one.value
    assert not found.readings or cuts(found)


def test_a_cut_list_of_objects_is_a_part_of_it() -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{n}", "namespace": "x"},
         "status": {"phase": "Pending"}}
        for n in range(3)
    ]  # fmt: skip
    text = json.dumps({"apiVersion": "v1", "items": pods, "kind": "List"}, indent=1)
    assert not cuts(read(text))
    assert cuts(read(text[: text.index('"p2"')]))


def test_the_command_names_the_form_and_how_to_take_it_again(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"latencies": {"total": 120, "mean": 50, "50th": 40, "95th": 9')
    ended = run(["diagnose", str(tmp_path / "cut.json")])
    assert ended.code == 1
    (tmp_path / "cut.xml").write_text(XML[: XML.rindex("dram_unc")])
    ended = run(["diagnose", str(tmp_path / "cut.xml"), "-vv"])
    assert "cut in the middle" in " ".join(ended.out.split())
