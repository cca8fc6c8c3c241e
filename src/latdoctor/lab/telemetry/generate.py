"""From a story to what a user would hand over: the bundle that is diagnosed, and the same as raw files. Pure."""

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
from latdoctor.lab.telemetry import gpu_faults, gpu_load, logs, profiler_trace, software_faults, tensorrt, triton, vllm
from latdoctor.lab.telemetry import host as hosts
from latdoctor.lab.telemetry import nvml as nvidia_smi
from latdoctor.lab.telemetry import tensorrt as tensorrt_log
from latdoctor.lab.telemetry.nvml import NvmlRecord, NvmlRefusal
from latdoctor.lab.telemetry.scenario import MODELS, WINDOW, FaultParameters, SyntheticIncident
from latdoctor.output_file import cannot_write


@dataclass(frozen=True, slots=True)
class IncidentKind:
    """`cause` is the id of what is wrong; empty where nothing is. `shows` is where it can be seen."""

    id: str
    tell: Callable[[FaultParameters], SyntheticIncident]
    shows: str
    healthy: bool = False
    named: bool = True  # can diagnosis name it from what collectors read today?

    @property
    def cause(self) -> str:
        return "" if self.healthy else self.id


INCIDENT_KINDS = (
    IncidentKind("infra.gpu.thermal-throttle", gpu_faults.too_hot, "NVML, metrics"),
    IncidentKind("infra.gpu.power-throttle", gpu_faults.too_little_power, "NVML, metrics"),
    IncidentKind("infra.gpu.xid-fault", software_faults.reported_by_driver, "kernel log, server log"),
    IncidentKind("infra.gpu.ecc-errors", gpu_faults.damaged_memory, "NVML, kernel log, server log"),
    IncidentKind("infra.gpu.lost", gpu_faults.off_the_bus, "NVML, kernel log, metrics"),
    IncidentKind("infra.gpu.memory-exhausted", gpu_faults.memory_full, "NVML, server log"),
    IncidentKind("infra.gpu.neighbour", gpu_faults.shared_gpu, "NVML, metrics"),
    IncidentKind("infra.driver.mismatch", software_faults.parts_do_not_fit, "kernel log or server log"),
    IncidentKind("infra.driver.cuda-errors", software_faults.failing_calls, "server log"),
    IncidentKind("infra.pcie.degraded", gpu_faults.poor_link, "NVML, kernel log, metrics"),
    IncidentKind("infra.nvlink.errors", gpu_faults.bad_nvlink, "NVML, kernel log"),
    IncidentKind("framework.launch.bound", software_faults.tiny_kernels, "trace"),
    IncidentKind("framework.launch.sync-stalls", software_faults.waits_in_the_middle, "trace"),
    IncidentKind("framework.copy.host-device", software_faults.copies, "trace"),
    IncidentKind("framework.fusion.missed", software_faults.unfused, "TensorRT files, trace"),
    IncidentKind("framework.precision.fallback", software_faults.wider_type, "TensorRT files, trace"),
    IncidentKind("app.kv.pressure", software_faults.full_cache, "metrics"),
    IncidentKind("healthy", software_faults.healthy, "nothing is wrong", healthy=True),
    IncidentKind("healthy-but-busy", software_faults.busy, "nothing is wrong at 95 % use", healthy=True),
    IncidentKind("idle", software_faults.idle, "nothing is wrong, low clocks", healthy=True),
)
BY_ID = {kind.id: kind for kind in INCIDENT_KINDS}


PAGES = 11  # one a second, as a look takes them
_FIRST_DAY = 1_790_000_000  # 2026-09-21; each seed has its own moment in the weeks after
_WEEKS = 6 * 7 * 86_400
_AS_FILES = frozenset({"prometheus", "logs", "torch_trace"})  # what a user has as files
_ENGINE = "resnet.plan"
_LOG_NAMES = {"dmesg": "dmesg.log", "journal": "kern.log", "kmsg": "kmsg.log"}


class TelemetryTruth(Struct, frozen=True):
    """What is really wrong; kept away from what is diagnosed. `subjects` are where it sits."""

    cause: str
    subjects: tuple[str, ...]
    seed: int
    severity: float
    generated_by: str


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as a user has it; `written` is its time, unix seconds."""

    content: bytes
    written: float


@dataclass(frozen=True, slots=True)
class SyntheticTelemetry:
    """All that was made. `mark` says so, in words, and stands in everything that is written."""

    bundle: Bundle
    raw: Mapping[str, RawFile]
    truth: TelemetryTruth
    mark: str


def generate_telemetry(cause: str, seed: int = 0, severity: float = 0.7) -> SyntheticTelemetry:
    """Synthetic telemetry of `cause`, an id of INCIDENT_KINDS. Raises UsageError for another id or severity."""
    kind = BY_ID.get(cause)
    if kind is None:
        raise UsageError(f"{cause!r} is no cause that can be made", next_step="latdoctor lab telemetry --list")
    if not 0 < severity <= 1:
        raise UsageError(f"{severity:g} is no severity", where="--severity", next_step="give one above 0, at most 1")
    # Numbers of their own for each kind: two kinds of one seed have nothing in common but their marks.
    rng = random.Random(f"{INCIDENT_KINDS.index(kind)}/{seed}")  # noqa: S311 — made telemetry, no secret
    now = float(_FIRST_DAY + rng.randrange(_WEEKS))
    story = kind.tell(FaultParameters(rng, severity, now))
    return _made(kind, story, rng, seed, severity, now)


def _made(
    kind: IncidentKind, story: SyntheticIncident, rng: random.Random, seed: int, severity: float, now: float
) -> SyntheticTelemetry:
    mark = f"generated by latdoctor lab telemetry, seed {seed}"
    host = f"gpu-{rng.randint(1, 40):02d}"
    model = story.service.model if story.service else rng.choice(MODELS)
    record = gpu_load.record(rng, story.machine, story.works, now, WINDOW) if story.works else None
    artifacts: list[Artifact] = []
    raw: dict[str, RawFile] = {}
    gaps = [Gap("lab", f"{mark}: made, not recorded")]
    if record is not None:
        artifacts.append(Artifact("nvml.json", "nvml", "nvml", f"NVML of {host}", now + WINDOW, to_json(record)))
        raw["nvidia-smi.csv"] = RawFile(nvidia_smi.csv(record), now + WINDOW)
    elif story.unseen:
        hidden = tuple(sorted(signal for signal in catalogue() if signal.startswith("gpu.")))
        gaps.append(Gap("nvml", f"no GPU can be seen: {story.unseen}", hidden))
    for number, sample in enumerate(hosts.samples(rng, now, WINDOW)):
        source = f"/proc of {host}"
        artifacts.append(Artifact(f"host/{number:03d}.json", "host", "host", source, sample.time, to_json(sample)))
    artifacts += _pages(story, rng, record, host, model, now)
    artifacts += _logs(story, rng, host, model, now)
    artifacts += _trace(story, rng, model, now)
    raw |= {_raw_name(one): RawFile(one.read(), one.taken_at) for one in artifacts if one.collector in _AS_FILES}
    if story.tensorrt:
        engine = _tensorrt(story, rng, severity, now)
        raw |= engine
        artifacts += [
            Artifact(name, "tensorrt", _ENGINE, name.rpartition("/")[2], file.written, file.content)
            for name, file in engine.items()
        ]
    bundle = Bundle(Context(model, story.slo, 0.01), Window(now, now + WINDOW), tuple(artifacts), tuple(gaps))
    return SyntheticTelemetry(bundle, raw, TelemetryTruth(kind.cause, story.subjects, seed, severity, mark), mark)


def _raw_name(artifact: Artifact) -> str:
    name = artifact.name.rpartition("/")[2]
    if artifact.collector == "prometheus":
        return f"metrics-{name.removesuffix('.prom').rpartition('-')[2]}.prom"
    return f"{name.partition('.')[0]}.pt.trace.json.gz" if artifact.collector == "torch_trace" else name


def _pages(
    story: SyntheticIncident, rng: random.Random, record: NvmlRecord | None, host: str, model: str, now: float
) -> Iterator[Artifact]:
    moments = [WINDOW * number / (PAGES - 1) for number in range(PAGES)]
    if story.service is not None:
        port, made = 8002, iter(triton.pages(rng, story.service, moments, _utilisation(record)))
    elif story.engine is not None:
        port, made = 8000, vllm.pages(rng, story.engine, moments, model)
    else:
        return
    group = f"1-{host}_{port}"
    for number, (moment, page) in enumerate(zip(moments, made, strict=True)):
        source = f"http://{host}:{port}/metrics"
        yield Artifact(f"prometheus/{group}-{number:02d}.prom", "prometheus", group, source, now + moment, page)


def _utilisation(record: NvmlRecord | None) -> list[tuple[str, float]]:
    """Each GPU that answers, with its last utilisation: Triton shows it too."""
    if record is None:
        return []
    last = {sample.index: sample.utilization for sample in record.samples}
    return [(device.uuid, busy) for device in record.devices if not isinstance(busy := last[device.index], NvmlRefusal)]


def _logs(story: SyntheticIncident, rng: random.Random, host: str, model: str, now: float) -> Iterator[Artifact]:
    """The kernel's log and the server's, each with what such logs hold anyway."""
    taken = now + WINDOW
    kernel = logs.kernel_log(rng, host, now)
    said = [*logs.neighbours(rng, now, rng.randint(14, 40)), *story.kernel]
    yield _log(_LOG_NAMES[kernel.form], kernel.text(rng, said), taken)
    form = "triton" if story.service is not None else "python"
    chatter = logs.server_chatter(rng, form, now, model)
    yield _log("server.log", logs.ServerLog(form, story.machine.pid).text([*chatter, *story.server]), taken)


def _log(name: str, content: bytes, taken: float) -> Artifact:
    return Artifact(f"logs/{name}", "logs", name, name, taken, content)


def _trace(story: SyntheticIncident, rng: random.Random, model: str, now: float) -> Iterator[Artifact]:
    """A few steps under the profiler, shortly before the look. Its clock counts from the last full hour."""
    if story.recording is None:
        return
    taken = now - rng.uniform(20, 90)
    base = taken // 3600 * 3600
    told = story.recording
    line = profiler_trace.record(rng, told.work, told.pace, told.steps, (taken - base) * 1e6)
    content = profiler_trace.trace(line.spans, story.machine.board, story.machine.pid, base)
    yield Artifact(
        f"torch_trace/{model}.json.gz", "torch_trace", model, f"{model}.pt.trace.json.gz", taken + 5, content
    )


def _tensorrt(story: SyntheticIncident, rng: random.Random, severity: float, now: float) -> dict[str, RawFile]:
    rows = tensorrt.layers(rng, story.tensorrt, severity)
    built = now - rng.uniform(2, 20) * 86_400
    files = {
        f"{_ENGINE}.graph.json": tensorrt.layer_info(rows),
        f"{_ENGINE}.profile.json": tensorrt.profile(rng, rows),
        f"{_ENGINE}.timing.json": tensorrt.times(rng, rows),
        f"{_ENGINE}.build.log": tensorrt_log.build_log(rng, rows, story.tensorrt, story.machine.board, built),
    }
    return {f"tensorrt/{name}": RawFile(content, built) for name, content in files.items()}


_README = """\
{mark}

Nothing here was recorded. bundle/ is read by `latdoctor diagnose {folder}`; raw/ holds the same as files, which
`--metrics`, `--log` and `--trace` take; saved pages tell no rates where no time stands in them, the bundle does.
nvidia-smi.csv and tensorrt/ are for people: no collector reads them yet.
"""


def write(made: SyntheticTelemetry, folder: Path) -> None:
    """Writes `bundle/`, `raw/` and README.txt below `folder`, which appears whole or not at all.

    Raises BundleError, also where something is at `folder` already.
    """
    bundle, raw = folder / "bundle", folder / "raw"
    save(made.bundle, bundle, made.mark)
    try:
        for name, file in made.raw.items():
            target = raw / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            os.utime(target, (file.written, file.written))
        (folder / "README.txt").write_text(_README.format(mark=made.mark, folder="bundle"))
    except OSError as error:
        raise cannot_write(folder, "the telemetry", error) from error


def write_truth(truth: TelemetryTruth, path: Path) -> None:
    """Raises BundleError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n")
    except OSError as error:
        raise cannot_write(path, "the truth", error) from error


def must_be_apart(truth: Path, folder: Path) -> None:
    """Raises UsageError where the truth would lie in the folder that is diagnosed."""
    if truth.absolute().is_relative_to(folder.absolute()):
        raise UsageError(
            "the truth would lie where diagnosis looks",
            where=str(truth),
            next_step="name a file outside the folder of --output",
        )
