"""What holds of all made telemetry: the same seed is the same bytes, counters count, and machines stay machines."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from latdoctor.errors import UsageError
from latdoctor.evidence.bundle import Artifact
from latdoctor.lab.telemetry.generate import INCIDENT_KINDS, IncidentKind, SyntheticTelemetry, generate_telemetry

every = pytest.mark.parametrize("kind", INCIDENT_KINDS, ids=lambda kind: kind.id)


def digest(made: SyntheticTelemetry) -> str:
    found = hashlib.sha256()
    for artifact in made.bundle.artifacts:
        found.update(f"{artifact.name} {artifact.taken_at!r} {artifact.source}".encode() + artifact.read())
    for name, file in made.raw.items():
        found.update(f"{name} {file.written!r}".encode() + file.content)
    return found.hexdigest()


def of(made: SyntheticTelemetry, collector: str) -> list[Artifact]:
    return [artifact for artifact in made.bundle.artifacts if artifact.collector == collector]


@every
def test_a_seed_gives_the_same_bytes_and_another_gives_others(kind: IncidentKind) -> None:
    assert digest(generate_telemetry(kind.id, 5, 0.6)) == digest(generate_telemetry(kind.id, 5, 0.6))
    assert digest(generate_telemetry(kind.id, 5, 0.6)) != digest(generate_telemetry(kind.id, 6, 0.6))


def test_a_seed_gives_the_same_bytes_in_every_process() -> None:
    """The order of sets and the hash of texts differ from process to process."""
    code = (
        "from latdoctor.lab.telemetry.generate import INCIDENT_KINDS\n"
        "from latdoctor.lab.telemetry.generate import generate_telemetry\n"
        "import hashlib\n"
        "for kind in INCIDENT_KINDS:\n"
        "    made = generate_telemetry(kind.id, 3)\n"
        "    parts = [*(f.content for f in made.raw.values()), *(a.read() for a in made.bundle.artifacts)]\n"
        "    whole = b''.join(parts)\n"
        "    print(hashlib.sha256(whole).hexdigest())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    ]
    assert len(printed[0].split()) == len(INCIDENT_KINDS)
    assert printed[0] == printed[1]


@every
def test_severity_changes_the_telemetry(kind: IncidentKind) -> None:
    mild, severe = generate_telemetry(kind.id, 2, 0.2), generate_telemetry(kind.id, 2, 1.0)
    assert (digest(mild) != digest(severe)) == (not kind.healthy)
    assert mild.truth.severity == 0.2
    assert mild.truth.cause == severe.truth.cause == kind.cause


@pytest.mark.parametrize("severity", [0.0, -1.0, 1.01, float("nan")])
def test_a_severity_out_of_range_is_refused(severity: float) -> None:
    with pytest.raises(UsageError, match="severity"):
        generate_telemetry("idle", severity=severity)


def samples_of(page: str) -> Iterator[tuple[str, str, float]]:
    """(type, series, value) of everything on the page."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield family.type, f"{sample.name}{sorted(sample.labels.items())}", sample.value


@every
def test_pages_are_well_formed_and_counters_never_fall(kind: IncidentKind) -> None:
    pages = [artifact.read().decode() for artifact in of(generate_telemetry(kind.id, 1, 1.0), "prometheus")]
    assert len(pages) == 11
    before: dict[str, float] = {}
    for page in pages:
        now = {series: value for type_, series, value in samples_of(page) if type_ in ("counter", "histogram")}
        assert now
        assert all(now[series] >= value for series, value in before.items())
        before = now


@every
def test_histograms_agree_with_themselves(kind: IncidentKind) -> None:
    for artifact in of(generate_telemetry(kind.id, 1), "prometheus")[-1:]:
        for family in text_string_to_metric_families(artifact.read().decode()):
            if family.type != "histogram":
                continue
            buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
            count = next(sample.value for sample in family.samples if sample.name.endswith("_count"))
            assert buckets == sorted(buckets)
            assert buckets[-1] == count


def record(made: SyntheticTelemetry) -> dict[str, Any]:
    found = json.loads(of(made, "nvml")[0].read())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_only_the_hot_gpu_is_cut(seed: int) -> None:
    made = generate_telemetry("infra.gpu.thermal-throttle", seed, 0.9)
    cut = {f"gpu/{sample['index']}" for sample in record(made)["samples"] if sample["clock_reasons"] & 0x60}
    assert cut == set(made.truth.subjects)


@pytest.mark.parametrize("seed", range(4))
def test_a_lost_gpu_answers_nothing_and_the_others_go_on(seed: int) -> None:
    made = generate_telemetry("infra.gpu.lost", seed, 0.4)
    at_end: dict[int, Any] = {sample["index"]: sample["power"] for sample in record(made)["samples"]}
    lost = {f"gpu/{index}" for index, power in at_end.items() if power == {"error": "gpu is lost"}}
    assert lost == set(made.truth.subjects)
    assert len(at_end) > 1


@pytest.mark.parametrize("seed", range(6))
def test_an_idle_link_and_idle_clocks_are_low(seed: int) -> None:
    samples = record(generate_telemetry("idle", seed))["samples"]
    assert all(sample["sm_clock"] < 4e8 and sample["utilization"] < 0.05 for sample in samples)
    assert all(sample["pcie_generation"] == 1 for sample in samples if sample["performance_state"] == 8)


@every
def test_nvml_values_are_plausible(kind: IncidentKind) -> None:
    if not of(generate_telemetry(kind.id, 3), "nvml"):
        pytest.skip("this one has no NVML")
    for sample in record(generate_telemetry(kind.id, 3))["samples"]:
        if isinstance(sample["power"], dict):
            continue
        assert 0 <= sample["utilization"] <= 1
        assert 0 < sample["memory_used"] <= sample["memory_total"]
        assert 5 < sample["power"] <= sample["power_limit"] * 1.01
        assert 20 < sample["temperature"] < 100
        held = sum(process["memory"] for process in sample["processes"])
        assert held <= sample["memory_used"]


@pytest.mark.parametrize("seed", range(3))
@every
def test_a_stream_runs_one_thing_at_a_time(kind: IncidentKind, seed: int) -> None:
    for artifact in of(generate_telemetry(kind.id, seed), "torch_trace"):
        events = json.loads(gzip.decompress(artifact.read()))["traceEvents"]
        ran = sorted((e["ts"], e["dur"]) for e in events if e.get("cat") in ("kernel", "gpu_memcpy"))
        assert len(ran) > 100
        # Times are rounded to nanoseconds.
        assert all(start + took <= later + 0.002 for (start, took), (later, _) in pairwise(ran))


def test_secondary_xids_come_after_their_root() -> None:
    for seed in range(8):
        log = (
            next(a for a in of(generate_telemetry("infra.gpu.xid-fault", seed), "logs") if a.group != "server.log")
            .read()
            .decode()
        )
        codes = [int(code) for code in re.findall(r"Xid \(PCI:[^)]*\): (\d+)", log)]
        assert codes[0] not in (43, 45), log
        assert {43, 45} & set(codes)
