"""Lines about GPUs and their links, about what the machine refuses and about pods, each with what it must yield."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.logs.collector import parse
from latdoctor.collectors.logs.line_kinds import LINE_KINDS
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence

CASES: dict[str, dict[str, Any]] = {
    name: case
    for file in ("gpu_lines.yaml", "host_failures.yaml", "kubelet_lines.yaml")
    for name, case in yaml.safe_load(Path(__file__).with_name(file).read_text()).items()
}
AER = """\
[ 1000.100001] pcieport 0000:00:03.1: AER: Multiple Corrected error received: 0000:00:03.1
[ 1000.100002] pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)
[ 1000.100003] pcieport 0000:00:03.1:   device [8086:6f08] error status/mask=00000040/00002000
[ 1000.100004] pcieport 0000:00:03.1:    [ 6] BadTLP
[ 1000.100005] pcieport 0000:00:03.1:    [12] Timeout
[ 1001.100001] nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer
[ 1001.100002] nvidia 0000:3b:00.0:    [14] CmpltTO                (First)
"""


def read(text: str) -> Evidence:
    return parse([Artifact("logs/x.log", "logs", "x.log", "x.log", 1.77e9, text.encode())])


@pytest.mark.parametrize("name", CASES)
def test_a_line_yields_what_it_reports(name: str) -> None:
    case = CASES[name]
    found = read(case["line"] + "\n")
    for event in case.get("events", ()):
        expected = {"subject": "node/x.log", **event}
        got = [{**one.fields, "signal": one.signal, "subject": one.subject} for one in found.events]
        relevant = [{key: one.get(key) for key in expected} for one in got]
        if "subject" not in event:
            relevant = [{**one, "subject": "node/x.log"} for one in relevant]
        assert any(_same(one, expected) for one in relevant), got
    for signal in case.get("absent", ()):
        assert signal not in {one.signal for one in found.events}
    known = {one.signal: one.value for one in found.readings}
    assert {name: _rounded(known.get(name)) for name in case.get("readings", {})} == {
        name: _rounded(value) for name, value in case.get("readings", {}).items()
    }


def _same(one: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {k: _rounded(v) for k, v in one.items()} == {k: _rounded(v) for k, v in expected.items()}


def _rounded(value: object) -> object:
    return round(float(value), 6) if isinstance(value, int | float) else value


def test_an_error_of_pcie_has_its_names_and_its_device() -> None:
    found = [one for one in read(AER).events if one.signal == "log.pcie_error"]
    assert [(one.subject, one.fields["severity"], one.fields["error"]) for one in found] == [
        ("node/x.log", "corrected", "BadTLP, Timeout"),
        ("gpu/0000:3b:00", "non-fatal", "CmpltTO"),
    ]


def test_the_transports_of_nccl_are_counted() -> None:
    lines = [
        "n1:7:8 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "n1:7:8 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "n1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[2] [send] via NET/Socket/0",
        "n1:7:8 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via SHM/direct/direct",
    ]
    found = {dict(one.labels).get("transport"): one.value for one in read("\n".join(lines)).readings}
    assert found == {"P2P": 2, "NET/Socket": 1, "SHM": 1}


def test_a_flood_of_errors_is_bounded_and_said() -> None:
    found = read(AER * 1500)
    assert sum(one.signal == "log.pcie_error" for one in found.events) <= 1002
    assert any(gap.code == "too-large" for gap in found.gaps)


@given(st.sampled_from(sorted(CASES)), st.data())
def test_a_mutated_line_does_no_harm(name: str, data: st.DataObject) -> None:
    line = CASES[name]["line"]
    cut = data.draw(st.integers(0, len(line)))
    other = data.draw(st.text(max_size=20))
    with suppress(SourceError):  # control characters make it no text
        read(f"x\n{line[:cut]}{other}{line[cut + len(other) :]}\n")


@pytest.mark.parametrize("name", CASES)
def test_each_line_has_a_needle_of_its_kind(name: str) -> None:
    wanted = {one["signal"] for one in CASES[name].get("events", ())} - {"log.cuda_error", "log.driver_mismatch"}
    if wanted or "readings" in CASES[name]:
        assert any(kind.has_needle(CASES[name]["line"].encode()) for kind in LINE_KINDS)
