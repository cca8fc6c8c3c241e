"""Generates synthetic telemetry: the bundle to diagnose, and the same evidence as raw files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Gap, Window, to_json
from latdoctor.gap_code import GapCode
from latdoctor.lab.telemetry import (
    driver_and_model_faults,
    gpu_faults,
    gpu_load,
    logs,
    nvml,
    profiler_trace,
    tensorrt,
    triton,
    vllm,
)
from latdoctor.lab.telemetry import host as hosts
from latdoctor.lab.telemetry.incident import MODELS, WINDOW, FaultParameters, SyntheticIncident
from latdoctor.lab.telemetry.nvml import NvmlRecord, NvmlRefusal
from latdoctor.output_file import cannot_write


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """A kind of incident. `cause`: the injected cause; empty for healthy ones. `shows`: the sources that show it."""

    id: str
    build: Callable[[FaultParameters], SyntheticIncident]
    shows: str
    healthy: bool = False
    named: bool = True  # whether the diagnosis names it

    @property
    def cause(self) -> str:
        return "" if self.healthy else self.id


INCIDENT_KINDS = (
    IncidentKind("infra.gpu.thermal-throttle", gpu_faults.thermal_throttle, "NVML, metrics"),
    IncidentKind("infra.gpu.power-throttle", gpu_faults.power_throttle, "NVML, metrics"),
    IncidentKind("infra.gpu.xid-fault", driver_and_model_faults.xid_fault, "kernel log, server log"),
    IncidentKind("infra.gpu.ecc-errors", gpu_faults.ecc_errors, "NVML, kernel log, server log"),
    IncidentKind("infra.gpu.lost", gpu_faults.gpu_lost, "NVML, kernel log, metrics"),
    IncidentKind("infra.gpu.memory-exhausted", gpu_faults.memory_exhausted, "NVML, server log"),
    IncidentKind("infra.gpu.neighbour", gpu_faults.shared_gpu, "NVML, metrics"),
    IncidentKind("infra.driver.mismatch", driver_and_model_faults.driver_mismatch, "kernel log or server log"),
    IncidentKind("infra.driver.cuda-errors", driver_and_model_faults.cuda_errors, "server log"),
    IncidentKind("infra.pcie.degraded", gpu_faults.degraded_pcie, "NVML, kernel log, metrics"),
    IncidentKind("infra.nvlink.errors", gpu_faults.nvlink_errors, "NVML, kernel log"),
    IncidentKind("framework.launch.bound", driver_and_model_faults.launch_bound, "trace"),
    IncidentKind("framework.launch.sync-stalls", driver_and_model_faults.sync_stalls, "trace"),
    IncidentKind("framework.copy.host-device", driver_and_model_faults.host_device_copies, "trace"),
    IncidentKind("framework.fusion.missed", driver_and_model_faults.missed_fusion, "TensorRT files, trace"),
    IncidentKind("framework.precision.fallback", driver_and_model_faults.precision_fallback, "TensorRT files, trace"),
    IncidentKind("app.kv.pressure", driver_and_model_faults.kv_pressure, "metrics"),
    IncidentKind("healthy", driver_and_model_faults.healthy, "nothing is wrong", healthy=True),
    IncidentKind("healthy-but-busy", driver_and_model_faults.busy, "nothing is wrong at 95 % use", healthy=True),
    IncidentKind("idle", driver_and_model_faults.idle, "nothing is wrong, low clocks", healthy=True),
)
BY_ID = {kind.id: kind for kind in INCIDENT_KINDS}


PAGES = 11  # one per second, as a live collection
_FIRST_DAY = 1_790_000_000  # 2026-09-21; each seed has its own time in the six weeks after
_WEEKS = 6 * 7 * 86_400
_AS_FILES = frozenset({"prometheus", "logs", "torch_trace"})  # collectors whose artifacts are also written as raw files
_ENGINE = "resnet.plan"
_LOG_NAMES = {"dmesg": "dmesg.log", "journal": "kern.log", "kmsg": "kmsg.log"}


class TelemetryTruth(Struct, frozen=True):
    """The ground truth. `subjects`: the faulty ones."""

    cause: str
    subjects: tuple[str, ...]
    seed: int
    severity: float
    generated_by: str


@dataclass(frozen=True, slots=True)
class RawFile:
    """A raw file; `written` is its modification time, unix seconds."""

    content: bytes
    written: float


@dataclass(frozen=True, slots=True)
class SyntheticTelemetry:
    """Generated telemetry. `mark` is the text that marks every output as generated."""

    bundle: Bundle
    raw: Mapping[str, RawFile]
    truth: TelemetryTruth
    mark: str


def generate_telemetry(cause: str, seed: int = 0, severity: float = 0.7) -> SyntheticTelemetry:
    """Synthetic telemetry of `cause`, an id of INCIDENT_KINDS. Raises UsageError for another id or severity."""
    kind = BY_ID.get(cause)
    if kind is None:
        raise UsageError(f"unknown cause {cause!r}", next_step="latdoctor lab telemetry --list")
    if not 0 < severity <= 1:
        raise UsageError(f"must be greater than 0 and at most 1 (got {severity:g})", where="--severity")
    # Independent random numbers per kind and seed.
    rng = random.Random(f"{INCIDENT_KINDS.index(kind)}/{seed}")  # noqa: S311 — synthetic telemetry, no secret
    now = float(_FIRST_DAY + rng.randrange(_WEEKS))
    incident = kind.build(FaultParameters(rng, severity, now))
    return _assembled(kind, incident, rng, seed, severity, now)


def _assembled(
    kind: IncidentKind, incident: SyntheticIncident, rng: random.Random, seed: int, severity: float, now: float
) -> SyntheticTelemetry:
    mark = f"generated by latdoctor lab telemetry, seed {seed}"
    host = f"gpu-{rng.randint(1, 40):02d}"
    model = incident.service.model if incident.service else rng.choice(MODELS)
    record = gpu_load.record(rng, incident.machine, incident.works, now, WINDOW) if incident.works else None
    artifacts: list[Artifact] = []
    raw: dict[str, RawFile] = {}
    gaps = [Gap("lab", f"{mark}: synthetic, not recorded", code=GapCode.SYNTHETIC)]
    if record is not None:
        artifacts.append(Artifact("nvml.json", "nvml", "nvml", f"NVML of {host}", now + WINDOW, to_json(record)))
        raw["nvidia-smi.csv"] = RawFile(nvml.csv(record), now + WINDOW)
    elif incident.unseen:
        hidden = tuple(sorted(signal for signal in catalogue() if signal.startswith("gpu.")))
        gaps.append(Gap("nvml", f"no GPU is visible: {incident.unseen}", hidden, code=GapCode.ABSENT))
    for number, sample in enumerate(hosts.samples(rng, now, WINDOW)):
        source = f"/proc of {host}"
        artifacts.append(Artifact(f"host/{number:03d}.json", "host", "host", source, sample.time, to_json(sample)))
    artifacts += _pages(incident, rng, record, host, model, now)
    artifacts += _logs(incident, rng, host, model, now)
    artifacts += _trace(incident, rng, model, now)
    raw |= {_raw_name(one): RawFile(one.read(), one.taken_at) for one in artifacts if one.collector in _AS_FILES}
    if incident.tensorrt:
        engine = _tensorrt(incident.tensorrt, incident.machine.board, rng, severity, now)
        raw |= engine
        artifacts += [
            Artifact(name, "tensorrt", _ENGINE, name.rpartition("/")[2], file.written, file.content)
            for name, file in engine.items()
        ]
    bundle = Bundle(Context(model, incident.slo, 0.01), Window(now, now + WINDOW), tuple(artifacts), tuple(gaps))
    return SyntheticTelemetry(bundle, raw, TelemetryTruth(kind.cause, incident.subjects, seed, severity, mark), mark)


def _raw_name(artifact: Artifact) -> str:
    name = artifact.name.rpartition("/")[2]
    if artifact.collector == "prometheus":
        return f"metrics-{name.removesuffix('.prom').rpartition('-')[2]}.prom"
    return f"{name.partition('.')[0]}.pt.trace.json.gz" if artifact.collector == "torch_trace" else name


def _pages(
    incident: SyntheticIncident, rng: random.Random, record: NvmlRecord | None, host: str, model: str, now: float
) -> Iterator[Artifact]:
    moments = [WINDOW * number / (PAGES - 1) for number in range(PAGES)]
    if incident.service is not None:
        port, texts = 8002, iter(triton.pages(rng, incident.service, moments, _utilisation(record)))
    elif incident.engine is not None:
        port, texts = 8000, vllm.pages(rng, incident.engine, moments, model)
    else:
        return
    group = f"1-{host}_{port}"
    for number, (moment, page) in enumerate(zip(moments, texts, strict=True)):
        source = f"http://{host}:{port}/metrics"
        yield Artifact(f"prometheus/{group}-{number:02d}.prom", "prometheus", group, source, now + moment, page)


def _utilisation(record: NvmlRecord | None) -> list[tuple[str, float]]:
    """The last utilisation of each reachable GPU, which Triton exports too."""
    if record is None:
        return []
    last = {sample.index: sample.utilization for sample in record.samples}
    return [(device.uuid, busy) for device in record.devices if not isinstance(busy := last[device.index], NvmlRefusal)]


def _logs(incident: SyntheticIncident, rng: random.Random, host: str, model: str, now: float) -> Iterator[Artifact]:
    """The kernel log and the server log, with their usual unrelated lines."""
    taken = now + WINDOW
    kernel = logs.kernel_log(rng, host, now)
    messages = [*logs.neighbours(rng, now, rng.randint(14, 40)), *incident.kernel]
    yield _log(_LOG_NAMES[kernel.form], kernel.text(rng, messages), taken)
    form = logs.ServerLogForm.TRITON if incident.service is not None else logs.ServerLogForm.PYTHON
    chatter = logs.server_chatter(rng, form, now, model)
    yield _log("server.log", logs.ServerLog(form, incident.machine.pid).text([*chatter, *incident.server]), taken)


def _log(name: str, content: bytes, taken: float) -> Artifact:
    return Artifact(f"logs/{name}", "logs", name, name, taken, content)


def _trace(incident: SyntheticIncident, rng: random.Random, model: str, now: float) -> Iterator[Artifact]:
    """A profiler trace of a few steps, shortly before the observation. Its clock starts at the last full hour."""
    if incident.recording is None:
        return
    taken = now - rng.uniform(20, 90)
    base = taken // 3600 * 3600
    recording = incident.recording
    simulator = profiler_trace.record(rng, recording.work, recording.pace, recording.steps, (taken - base) * 1e6)
    content = profiler_trace.trace(simulator.spans, incident.machine.board, incident.machine.pid, base)
    yield Artifact(
        f"torch_trace/{model}.json.gz", "torch_trace", model, f"{model}.pt.trace.json.gz", taken + 5, content
    )


def _tensorrt(
    state: tensorrt.EngineState, board: gpu_load.GpuModel, rng: random.Random, severity: float, now: float
) -> dict[str, RawFile]:
    rows = tensorrt.layers(rng, state, severity)
    built = now - rng.uniform(2, 20) * 86_400
    files = {
        f"{_ENGINE}.graph.json": tensorrt.layer_info(rows),
        f"{_ENGINE}.profile.json": tensorrt.profile(rng, rows),
        f"{_ENGINE}.timing.json": tensorrt.times(rng, rows),
        f"{_ENGINE}.build.log": tensorrt.build_log(rng, rows, state, board, built),
    }
    return {f"tensorrt/{name}": RawFile(content, built) for name, content in files.items()}


_README = """\
{mark}

This telemetry is synthetic. `latdoctor diagnose {folder}` reads bundle/. raw/ has the same evidence as files for
`--metrics`, `--log` and `--trace`; the pages in raw/ have no timestamps, so rates need the bundle. No collector reads
nvidia-smi.csv.
"""


def write(telemetry: SyntheticTelemetry, folder: Path) -> None:
    """Writes `bundle/`, `raw/` and README.txt to the new folder `folder`. Raises BundleError, also where it exists."""
    bundle, raw = folder / "bundle", folder / "raw"
    save(telemetry.bundle, bundle, telemetry.mark)
    try:
        for name, file in telemetry.raw.items():
            target = raw / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            os.utime(target, (file.written, file.written))
        (folder / "README.txt").write_text(_README.format(mark=telemetry.mark, folder="bundle"))
    except OSError as error:
        raise cannot_write(folder, "the telemetry", error) from error


def write_truth(truth: TelemetryTruth, path: Path) -> None:
    """Raises BundleError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n")
    except OSError as error:
        raise cannot_write(path, "the ground truth", error) from error


def must_be_apart(truth: Path, folder: Path) -> None:
    """Raises UsageError where the ground truth would be written to the diagnosed folder."""
    if truth.absolute().is_relative_to(folder.absolute()):
        raise UsageError(
            "the ground truth would be written to the diagnosed folder",
            where=str(truth),
            next_step="choose a file outside the folder of --output",
        )
