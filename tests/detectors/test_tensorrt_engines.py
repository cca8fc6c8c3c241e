"""TensorRT engines compared with each other and with the GPUs."""

from __future__ import annotations

import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.engine_comparison import compare_engines
from latdoctor.evidence.model import Evidence, Origin, Reading, Value


def told(subject: str, **values: Value) -> list[Reading]:
    return [Reading(name.replace("__", "."), subject, value, Origin("x")) for name, value in values.items()]


def engine(name: str, time: float, bits: float, device: str = "NVIDIA L4", size: str = "8x3") -> list[Reading]:
    return told(f"engine/{name}", engine__layer_time=time, engine__bits=bits, engine__device=device, engine__input=size)


def found(*readings: list[Reading]) -> dict[tuple[str, str], Value]:
    seen = compare_engines(Evidence(readings=tuple(one for part in readings for one in part)))
    return {
        (one.subject.removeprefix("engine/"), one.signal.removeprefix("engine.")): one.value for one in seen.readings
    }


def test_a_narrow_engine_is_held_against_the_fastest_wider_one() -> None:
    seen = found(engine("int8", 1.1, 8), engine("fp16", 1.0, 16), engine("fp32", 2.0, 32))
    assert seen["int8", "time_over_wider"] == pytest.approx(1.1)
    assert seen["fp16", "time_over_wider"] == 0.5
    assert ("fp32", "time_over_wider") not in seen
    assert seen["fp32", "time_over_fastest"] == 2


def test_one_engine_alone_is_compared_with_nothing() -> None:
    assert found(engine("int8", 1.1, 8)) == {}


@pytest.mark.parametrize("other", [engine("b", 1.0, 16, device="NVIDIA T4"), engine("b", 1.0, 16, size="1x3")])
def test_engines_that_differ_are_not_compared(other: list[Reading]) -> None:
    evidence = Evidence(readings=(*engine("a", 1.1, 8), *other))
    seen = compare_engines(evidence)
    assert seen.readings == ()
    assert ["cannot be compared" in gap.reason for gap in seen.gaps] == [True, True]
    assert compare_engines(Evidence.merge([evidence, seen])).gaps == ()


@pytest.mark.parametrize(
    ("built", "seen", "foreign"),
    [("NVIDIA L4", "NVIDIA L4", 0), ("L4", "NVIDIA  L4", 0), ("NVIDIA A100 80GB PCIe", "NVIDIA L4", 1)],
)
def test_an_engine_belongs_to_its_gpu(built: str, seen: str, foreign: int) -> None:
    parts = (engine("a", 1.0, 8, device=built), told("gpu/0", gpu__name=seen))
    assert found(*parts)["a", "foreign_device"] == foreign


def test_without_a_gpu_nothing_is_said() -> None:
    assert found(engine("a", 1.0, 8)) == {}


def test_deriving_twice_adds_nothing() -> None:
    evidence = Evidence(readings=(*engine("a", 1.1, 8), *engine("b", 1.0, 16), *told("gpu/0", gpu__name="NVIDIA L4")))
    once = derive(evidence)
    assert derive(once) == once
