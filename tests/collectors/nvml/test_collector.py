"""The NVML source over a stub driver: what each state of a GPU is read as.

The values of LOAD and IDLE are those that `nvidia-smi -q` shows for an H200 under load and a GeForce at rest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from latdoctor.collectors.nvml import COLLECTOR, GPU_SIGNALS
from latdoctor.collectors.nvml import collector as nvml
from latdoctor.evidence.catalogue import catalogue

MIB = 1 << 20
MACHINE = {"driver": "590.48.01", "cuda": 13010}
LOAD = {
    "name": "NVIDIA H200",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "pci": "00000000:83:00.0",
    "handle": 0,
    "memory.total": 143771 * MIB,
    "memory.used": 32362 * MIB,
    "memory.reserved": 614 * MIB,
    "utilization": 100,
    "pstate": 0,
    "sm_clock": 1980,
    "sm_clock_max": 1980,
    "temperature": 52,
    "temperature.slowdown": "!3",
    "temperature.margin": 35,
    "power": 627320,
    "power.limit": 700000,
    "reasons": 0,
    "ecc": 0,
    "remap.pending": 0,
    "remap.failed": 0,
    "pcie.width": 16,
    "pcie.width_max": 16,
    "pcie.gen": 5,
    "pcie.gen_max": 5,
    "pcie.replays": 7,
    "links": 2,
    "link.0.up": 1,
    "link.0.errors.0": 3,
    "link.0.errors.1": 0,
    "link.0.errors.2": 10,
    "link.0.errors.3": "!3",
    "link.1.up": 0,
    "mig": 0,
    "processes": "10291:2690646016 10309:29605494784",
}
IDLE = {
    **LOAD,
    "name": "NVIDIA GeForce RTX 4080 SUPER",
    "memory.total": 16376 * MIB,
    "memory.used": 411 * MIB,
    "utilization": 0,
    "pstate": 8,
    "sm_clock": 210,
    "sm_clock_max": 3165,
    "temperature": 43,
    "temperature.slowdown": 96,
    "temperature.margin": "!3",
    "power": 39000,
    "power.limit": 250000,
    "reasons": 0x5,  # idle, and the software power cap that some boards show at rest
    "ecc": "!3",
    "remap.pending": "!3",
    "pcie.gen": 1,
    "pcie.gen_max": 4,
    "links": "!3",
    "mig": "!3",
    "processes": "",
}


def state(*gpus: dict[str, Any], **machine: object) -> dict[str, object]:
    keys = {f"{index}.{key}": value for index, gpu in enumerate(gpus) for key, value in gpu.items()}
    return {"count": len(gpus), **MACHINE, **machine, **keys}


def near(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-9)


def test_load(look):
    seen = look([state(LOAD)])
    told = {reading.signal: reading.value for reading in seen.evidence.readings}
    assert told == {
        "gpu.count": 1.0,
        "gpu.count_expected": 1.0,
        "gpu.driver_version": "590.48.01",
        "gpu.cuda_driver_version": "13.1",
        "gpu.name": "NVIDIA H200",
        "gpu.uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "gpu.pci": "0000:83:00",
        "gpu.utilization": near(1.0),
        "gpu.memory_used": 32362.0 * MIB,
        "gpu.memory_total": 143771.0 * MIB,
        "gpu.memory_used_ratio": near(32362 / 143771),
        "gpu.sm_clock": 1.98e9,
        "gpu.sm_clock_max": 1.98e9,
        "gpu.sm_clock_ratio": 1.0,
        "gpu.temperature": 52.0,
        "gpu.temperature_margin": 35.0,
        "gpu.power": near(627.32),
        "gpu.power_limit": near(700.0),
        "gpu.power_ratio": near(627.32 / 700),
        "gpu.throttle.idle": 0.0,
        "gpu.throttle.sw_power_cap": 0.0,
        "gpu.throttle.hw_slowdown": 0.0,
        "gpu.throttle.sw_thermal": 0.0,
        "gpu.throttle.hw_thermal": 0.0,
        "gpu.throttle.hw_power_brake": 0.0,
        "gpu.throttle.thermal": 0.0,
        "gpu.ecc.uncorrectable": 0.0,
        "gpu.ecc.uncorrectable_rate": 0.0,
        "gpu.row_remap.pending": 0.0,
        "gpu.row_remap.failed": 0.0,
        "gpu.pcie.width": 16.0,
        "gpu.pcie.width_ratio": 1.0,
        "gpu.pcie.generation": 5.0,
        "gpu.pcie.generation_ratio": 1.0,
        "gpu.pcie.replay_rate": 0.0,
        "gpu.nvlink.error_rate": 0.0,
        "gpu.processes": 2.0,
    }
    # The one thing that an H200 does not tell hides itself and nothing else.
    assert [gap.signals for gap in seen.evidence.gaps] == [("gpu.temperature_slowdown",)]
    assert {reading.window.seconds for reading in seen.evidence.readings} == {1.0}
    assert seen.evidence.parents == {"node/local": None, "gpu/0": "node/local"}


def test_idle(look):
    seen = look([state(IDLE)])
    assert seen.value("gpu.throttle.idle") == 1.0
    assert seen.value("gpu.throttle.sw_power_cap") == 0.0
    assert seen.value("gpu.throttle.thermal") == 0.0
    assert seen.value("gpu.pcie.generation") == 1.0
    assert seen.value("gpu.pcie.generation_ratio") is None
    assert seen.gap("gpu.pcie.generation_ratio") == "idle: the link is powered down"
    assert seen.value("gpu.temperature_margin") == 53.0
    assert seen.value("gpu.processes") == 0.0
    assert seen.value("gpu.ecc.uncorrectable") is None
    assert "not supported" in seen.gap("gpu.ecc.uncorrectable")
    assert seen.value("gpu.nvlink.error_rate") is None
    assert "not supported" in seen.gap("gpu.nvlink.error_rate")


def test_idle_link_at_full_speed_is_seen(look):
    seen = look([state({**LOAD, "utilization": 0, "reasons": 1, "sm_clock": 345})])
    assert seen.value("gpu.pcie.generation_ratio") == 1.0


def test_slow_link_under_load(look):
    seen = look([state({**LOAD, "pcie.gen": 3})])
    assert seen.value("gpu.pcie.generation_ratio") == near(0.6)


def test_link_that_wakes_up_under_load(look):
    asleep, waking = {**LOAD, "utilization": 2, "pcie.gen": 1}, {**LOAD, "pcie.gen": 1}
    seen = look([state(asleep), state(waking), state(LOAD)])
    assert seen.value("gpu.pcie.generation_ratio") == 1.0


def test_link_of_a_gpu_that_hardly_works(look):
    """One short burst does not tell that the link should have woken up."""
    resting, burst = {**LOAD, "utilization": 2, "pcie.gen": 1}, {**LOAD, "utilization": 30, "pcie.gen": 1}
    seen = look([state(resting), state(burst), *[state(resting)] * 3], window=2.0)
    assert seen.gap("gpu.pcie.generation_ratio") == "idle: the link is powered down"


@pytest.mark.parametrize("utilization", ["!3", 100])  # not told; or still that of a moment ago
def test_link_of_a_gpu_in_an_idle_state(look, utilization):
    seen = look([state({**LOAD, "utilization": utilization, "pstate": 8, "pcie.gen": 1})])
    assert seen.gap("gpu.pcie.generation_ratio") == "idle: the link is powered down"


def test_value_that_stands_for_none(look):
    seen = look([state({**LOAD, "pcie.replays": 0xFFFFFFFF})])
    assert seen.value("gpu.pcie.replay_rate") is None
    assert "value not available" in seen.gap("gpu.pcie.replay_rate")


def test_heat(look):
    hot = {**LOAD, "temperature": 86, "temperature.margin": 1, "sm_clock": 990}
    seen = look(
        [state({**hot, "reasons": 0x20}), state({**hot, "reasons": 0x48}), state(LOAD), state(LOAD)], window=1.5
    )
    assert seen.value("gpu.throttle.sw_thermal") == 0.25
    assert seen.value("gpu.throttle.hw_thermal") == 0.25
    assert seen.value("gpu.throttle.hw_slowdown") == 0.25
    assert seen.value("gpu.throttle.thermal") == 0.5
    assert seen.value("gpu.temperature") == 86.0
    assert seen.value("gpu.temperature_margin") == 1.0
    assert seen.value("gpu.sm_clock_ratio") == near(0.75)
    reading = seen.reading("gpu.throttle.thermal")
    assert reading is not None
    assert reading.note == "share of 4 samples"


def test_power_cap_under_load(look):
    seen = look([state({**LOAD, "reasons": 0x4, "sm_clock": 1200}), state({**LOAD, "reasons": 0x84})], window=0.5)
    assert seen.value("gpu.throttle.sw_power_cap") == 1.0
    assert seen.value("gpu.throttle.hw_power_brake") == 0.5


def test_double_bit_error(look):
    seen = look([state(LOAD), state({**LOAD, "ecc": 2})], window=4.0)
    assert seen.value("gpu.ecc.uncorrectable") == 2.0
    assert seen.value("gpu.ecc.uncorrectable_rate") == 0.5  # per second, the base unit


def test_row_remap(look):
    seen = look([state({**LOAD, "remap.pending": 1})])
    assert (seen.value("gpu.row_remap.pending"), seen.value("gpu.row_remap.failed")) == (1.0, 0.0)


def test_counters(look):
    seen = look(
        [state(LOAD), state({**LOAD, "pcie.replays": 11, "link.0.errors.0": 5, "link.0.errors.2": 14})], window=2.0
    )
    assert seen.value("gpu.pcie.replay_rate") == 2.0
    assert seen.value("gpu.nvlink.error_rate") == 3.0


@pytest.mark.parametrize(
    ("change", "signal", "why"),
    [
        ({"pcie.replays": 2}, "gpu.pcie.replay_rate", "decreased"),
        ({"link.0.errors.2": 1}, "gpu.nvlink.error_rate", "decreased"),
        (
            {"link.0.errors.0": "!3", "link.0.errors.1": "!3", "link.0.errors.2": "!3"},
            "gpu.nvlink.error_rate",
            "not supp",
        ),
        ({"link.0.up": 0}, "gpu.nvlink.error_rate", "came up or went down"),
    ],
)
def test_counters_that_cannot_be_compared(look, change, signal, why):
    seen = look([state(LOAD), state({**LOAD, **change})])
    assert seen.value(signal) is None
    assert why in seen.gap(signal)


def test_no_window_no_rate(look):
    seen = look([state(LOAD)], window=0.0)
    assert seen.value("gpu.utilization") == 1.0
    for signal in ("gpu.ecc.uncorrectable_rate", "gpu.pcie.replay_rate", "gpu.nvlink.error_rate"):
        assert seen.value(signal) is None
        assert "needs two samples" in seen.gap(signal)


@pytest.mark.parametrize("handle", [0, "!15"])
def test_gpu_lost_in_mid_window(look, handle):
    """Once it is gone every answer is an error; the handle may go on to be given or not."""
    gone = dict.fromkeys(LOAD, "!15") | {"handle": handle}
    seen = look([state(LOAD, LOAD), state(LOAD, LOAD), state(LOAD, gone)], window=2.0)
    assert (seen.value("gpu.count", "node/local"), seen.value("gpu.count_expected", "node/local")) == (1.0, 2.0)
    assert not [gap for gap in seen.evidence.gaps if gap.subject == "gpu/0" and "lost" in gap.reason]
    (loss,) = (gap for gap in seen.evidence.gaps if gap.subject == "gpu/1" and "lost" in gap.reason)
    assert loss.signals == GPU_SIGNALS
    assert loss.reason == "the GPU was lost 0.5 s into the window (NVML: gpu is lost)"
    assert "Xid 79" in loss.next_step
    before = seen.reading("gpu.temperature", "gpu/1")
    assert before is not None
    assert before.window.seconds == 0.5


def test_lost_gpu_of_which_the_driver_still_remembers_something(look):
    seen = look([state({**LOAD, "temperature": "!15", "ecc": "!15"})])
    assert seen.value("gpu.count", "node/local") == 0.0
    assert [reading.signal for reading in seen.evidence.readings if reading.signal == "gpu.power"] == []


def test_gpu_lost_before(look):
    seen = look([state(LOAD, {"handle": "!15"})])
    assert (seen.value("gpu.count", "node/local"), seen.value("gpu.count_expected", "node/local")) == (1.0, 2.0)
    assert [reading for reading in seen.evidence.readings if reading.subject == "gpu/1"] == []
    assert "lost before the window" in seen.gap("gpu.temperature", "gpu/1")
    assert [(sight.what, sight.status) for sight in seen.sights[1:]] == [("gpu/0", "partly"), ("gpu/1", "no")]


def test_gpu_that_gives_no_answer_at_all_does_not_count(look):
    seen = look([state(LOAD, dict.fromkeys(LOAD, "!999"))])
    assert (seen.value("gpu.count", "node/local"), seen.value("gpu.count_expected", "node/local")) == (1.0, 2.0)
    assert "unknown error" in seen.gap("gpu.utilization", "gpu/1")


def test_gpu_of_somebody_else_is_not_missing(look):
    seen = look([state(LOAD, {"handle": "!4"})])
    assert (seen.value("gpu.count", "node/local"), seen.value("gpu.count_expected", "node/local")) == (1.0, 1.0)
    assert "another user" in seen.gap("gpu.temperature", "gpu/1")


def test_half_the_lanes(look):
    seen = look([state({**LOAD, "pcie.width": 8})])
    assert (seen.value("gpu.pcie.width"), seen.value("gpu.pcie.width_ratio")) == (8.0, 0.5)


def test_old_driver(look):
    seen = look([state({**LOAD, "reasons": 0x20, "temperature.slowdown": 96})], library="old")
    assert seen.value("gpu.throttle.thermal") == 1.0  # by the function's old name
    assert seen.value("gpu.memory_used") == (32362.0 + 614.0) * MIB
    assert seen.value("gpu.temperature") == 52.0
    assert seen.value("gpu.temperature_margin") == 44.0
    assert seen.value("gpu.processes") == 2.0
    assert seen.value("gpu.cuda_driver_version", "node/local") == "13.1"


def test_function_that_is_missing(look):
    seen = look([state({**LOAD, "temperature.slowdown": "!13", "reasons": "!13"})])
    (gap,) = (gap for gap in seen.evidence.gaps if "gpu.throttle.thermal" in gap.signals)
    assert "too old" in gap.reason
    assert gap.next_step == "update the GPU driver"
    throttle = {signal for signal in GPU_SIGNALS if ".throttle." in signal}
    assert set(gap.signals) == throttle | {"gpu.temperature_slowdown"}


def test_no_gpu(look):
    seen = look([state()])
    assert (seen.value("gpu.count", "node/local"), seen.value("gpu.count_expected", "node/local")) == (0.0, 0.0)
    assert [gap.reason for gap in seen.evidence.gaps] == ["the driver lists no GPU"]
    assert [sight.status for sight in seen.sights] == ["partly"]


def test_mig(look):
    """With MIG on the driver tells neither utilisation nor row remapping of the whole GPU."""
    seen = look([state({**LOAD, "mig": 1, "utilization": "!3", "remap.pending": "!3", "pcie.gen": 4, "processes": ""})])
    assert seen.value("gpu.utilization") is None
    assert seen.gap("gpu.utilization").startswith("MIG is on")
    assert seen.gap("gpu.row_remap.failed").startswith("MIG is on")
    assert seen.gap("gpu.utilization") in [gap.reason for gap in seen.evidence.gaps]
    assert "whether the GPU is idle is not reported" in seen.gap("gpu.pcie.generation_ratio")
    assert seen.value("gpu.memory_used") == 32362.0 * MIB


@pytest.mark.parametrize(
    ("machine", "library", "word", "step"),
    [
        ({}, "none", "nvml shared library not found", "--gpus all"),
        ({"init": "!9"}, "new", "driver not loaded", "modprobe nvidia"),
        ({"init": "!4"}, "new", "insufficient permissions", "/dev/nvidia"),
        ({"init": "!18"}, "new", "version mismatch", "reboot"),
        ({"count": "!999"}, "new", "unknown error", "nvidia-smi"),
    ],
)
def test_no_nvml(look, machine, library, word, step):
    seen = look([state(**machine)], library=library)
    assert seen.artifacts == ()
    (gap,) = seen.collected_gaps
    assert word in gap.reason
    assert step in gap.next_step
    assert set(gap.signals) == COLLECTOR.provides
    (sight,) = seen.sights
    assert sight.status == "no"
    assert word in sight.detail
    assert sight.next_step


@pytest.mark.parametrize(
    ("pid", "processes", "foreign", "why"),
    [
        ("none", "SELF:5 4711:5", None, ""),
        ("parent", "SELF:5", 0.0, ""),  # a child of the watched process is its own
        ("parent", "SELF:5 4711:5 4712:5", 2.0, ""),
        ("4711", "SELF:5 4711:5 4712:5", 2.0, ""),
        ("4000000", "4711:5", None, "not among those that NVML lists"),
        ("4711", "", None, "another PID namespace"),
        ("4711", "!4", None, "another user"),
    ],
)
def test_foreign_processes(look, pid, processes, foreign, why):
    seen = look([state({**LOAD, "processes": processes})], pid=pid)
    assert seen.value("gpu.foreign_processes") == foreign
    assert why in seen.gap("gpu.foreign_processes")
    assert bool(why) == bool(seen.gap("gpu.foreign_processes"))


def test_nothing_is_said_of_a_gpu_that_the_watched_process_does_not_use(look):
    seen = look([state({**LOAD, "processes": "4711:5"}, {**LOAD, "processes": "4712:5"})], pid="4711")
    assert seen.value("gpu.foreign_processes", "gpu/0") == 0.0
    assert seen.value("gpu.foreign_processes", "gpu/1") is None
    assert seen.gap("gpu.foreign_processes", "gpu/1") == ""


def test_untrusted_text_is_made_harmless(look):
    seen = look([state({**LOAD, "name": "GPU\x1b[31m\u202ered"}, driver="1\x1b]0;x\x07.2")])
    assert seen.value("gpu.name") == "GPUred"
    assert seen.value("gpu.driver_version", "node/local") == "1.2"


def test_name_that_is_no_text(look):
    seen = look([state({**LOAD, "name": "GPU\udcff"})])
    assert seen.value("gpu.name") is None
    assert "unreadable answer" in seen.gap("gpu.name")


def test_preflight_names_what_each_gpu_hides(look):
    seen = look([state(LOAD, {**LOAD, "temperature.slowdown": 96})])
    assert [(sight.what, sight.status) for sight in seen.sights] == [
        (nvml.TITLE, "yes"),
        ("gpu/0", "partly"),
        ("gpu/1", "yes"),
    ]
    assert seen.sights[0].detail == "driver 590.48.01, 2 GPUs"
    assert "gpu.temperature_slowdown" in seen.sights[1].detail
    assert seen.sights[2].detail == "NVIDIA H200"


def test_a_replay_reads_the_same(look, tmp_path: Path):
    seen = look([state(LOAD), state(IDLE), state({**LOAD, "ecc": 1})])
    saved = tmp_path / "nvml.json"
    (artifact,) = seen.artifacts
    saved.write_bytes(artifact.read())
    assert nvml.READER.parse([replace(artifact, content=saved)]) == seen.evidence


def test_every_signal_is_catalogued():
    assert COLLECTOR.provides <= catalogue().keys()
