"""What is wrong in a cluster by its own account: nodes, pods, workloads and autoscalers in a bad state, by name.

A state counts before an event: a node that was not ready and is ready now is no trouble. Several sources may name one
object; it is listed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.cluster_onset import began
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Event, Evidence, Reading, Value, is_unknown, kind_of
from latdoctor.evidence.subject_branch import cluster_of


class ClusterTrouble(StrEnum):
    """A kind of trouble, the gravest first."""

    NODE_NOT_READY = "node-not-ready"
    GPUS_GONE = "gpus-gone"
    MEMORY_PRESSURE = "memory-pressure"
    DISK_PRESSURE = "disk-pressure"
    PID_PRESSURE = "pid-pressure"
    NETWORK_UNAVAILABLE = "network-unavailable"
    OOM_KILLED = "oom-killed"
    CRASH_LOOP = "crash-loop"
    IMAGE_PULL = "image-pull"
    START_FAILED = "start-failed"
    EVICTED = "evicted"
    PENDING = "pending"
    QUOTA_USED_UP = "quota-used-up"
    CREATE_REFUSED = "create-refused"
    VOLUME_FAILED = "volume-failed"
    ROLLOUT_STALLED = "rollout-stalled"
    TOO_FEW_REPLICAS = "too-few-replicas"
    AUTOSCALER_LIMITED = "autoscaler-limited"
    AUTOSCALER_BLIND = "autoscaler-blind"
    PROBE_KILL = "probe-kill"
    SCALE_UP_REFUSED = "scale-up-refused"
    ADMISSION_FAILED = "admission-failed"
    PREEMPTED = "preempted"
    NODE_REBOOTED = "node-rebooted"
    CORDONED = "cordoned"
    OTHER = "other"


class _Source(Struct, frozen=True):
    """A state (a flag, with the value that is bad and its labels) and the events of one kind of trouble.

    `fields` are those that the event has, `without` those that it has not; `details` are printed behind the name.
    """

    signal: str = ""
    bad: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()
    event: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    without: tuple[tuple[str, str], ...] = ()
    details: tuple[str, ...] = ()


_NETWORK = "NetworkUnavailable"


def _pressure(name: str) -> _Source:
    labels = (("condition", f"{name}Pressure"),)
    return _Source("node.pressure", labels=labels, event="kube.node_pressure", fields=(("kind", name.lower()),))


_SOURCES = {
    ClusterTrouble.NODE_NOT_READY: _Source("node.ready", bad=0.0, event="kube.node_not_ready"),
    ClusterTrouble.MEMORY_PRESSURE: _pressure("Memory"),
    ClusterTrouble.DISK_PRESSURE: _pressure("Disk"),
    ClusterTrouble.PID_PRESSURE: _pressure("PID"),
    ClusterTrouble.NETWORK_UNAVAILABLE: _Source(
        "node.network_unavailable", event="kube.warning", fields=(("reason", _NETWORK),)
    ),
    ClusterTrouble.OOM_KILLED: _Source("container.oom_killed", event="kube.oom_kill", details=("process",)),
    ClusterTrouble.CRASH_LOOP: _Source("container.crash_looping", event="kube.crash_loop"),
    ClusterTrouble.IMAGE_PULL: _Source("container.image_pull_failing", event="kube.image_pull_failed"),
    ClusterTrouble.START_FAILED: _Source(event="kube.start_failed", details=("reason",)),
    ClusterTrouble.EVICTED: _Source("pod.evicted", event="kube.evicted", details=("resource",)),
    ClusterTrouble.PENDING: _Source("pod.pending"),
    ClusterTrouble.CREATE_REFUSED: _Source(event="kube.create_refused", details=("why", "quota")),
    ClusterTrouble.VOLUME_FAILED: _Source(event="kube.volume_failed"),
    ClusterTrouble.ROLLOUT_STALLED: _Source(event="kube.rollout_stalled"),
    ClusterTrouble.AUTOSCALER_LIMITED: _Source("hpa.limited", event="kube.scaling_limited"),
    ClusterTrouble.AUTOSCALER_BLIND: _Source("hpa.metric_missing", event="kube.scaling_metric_failed"),
    ClusterTrouble.PROBE_KILL: _Source(event="kube.probe_kill", details=("probe",)),
    ClusterTrouble.SCALE_UP_REFUSED: _Source(event="kube.scale_up_refused"),
    ClusterTrouble.ADMISSION_FAILED: _Source(event="kube.admission_failed", details=("reason",)),
    ClusterTrouble.PREEMPTED: _Source(event="kube.preempted"),
    ClusterTrouble.NODE_REBOOTED: _Source(event="kube.node_rebooted"),
    ClusterTrouble.CORDONED: _Source("node.unschedulable"),
    ClusterTrouble.OTHER: _Source(event="kube.warning", without=(("reason", _NETWORK),), details=("reason",)),
}
_NAMED = 2  # objects of each kind of trouble
_SMALLEST_ROOM = 1e-9


def cluster_troubles(evidence: Evidence) -> Iterator[Vital]:
    """Each kind of trouble with the number and the names of its objects, the gravest first."""
    for code in ClusterTrouble:
        if compute := _COMPUTED.get(code):
            yield from _vital(evidence, code, *compute(evidence))
        elif not (code == ClusterTrouble.PENDING and evidence.events_by_signal.get("kube.unschedulable")):
            yield from _of_source(evidence, code, _SOURCES[code])


def _of_source(evidence: Evidence, code: ClusterTrouble, source: _Source) -> Iterator[Vital]:
    states = _states(evidence, source)
    bad = {subject: "" for subject, value in states.items() if value == source.bad}
    events = [one for one in evidence.events_by_signal.get(source.event, ()) if _matches(one, source)]
    times: list[float] = []
    for one in events:
        if _contradicted(evidence, one.subject, states, bad):
            continue
        details = " ".join(_text(one.fields[name]) for name in source.details if name in one.fields)
        holder = _holder(evidence, one.subject, bad)
        bad[holder] = bad.get(holder) or details
        if one.time is not None and "when" not in one.fields:
            times.append(began(one))
    yield from _vital(evidence, code, source.signal or source.event, bad, min(times, default=None))


def _states(evidence: Evidence, source: _Source) -> dict[str, float]:
    """The last value of the flag of each subject; of several labels that are not asked for, the bad one."""
    found: dict[str, float] = {}
    for one in evidence.readings_by_signal.get(source.signal, ()):
        if isinstance(one.value, str) or is_unknown(one.value) or not set(source.labels) <= set(one.labels):
            continue
        free = set(one.labels) - set(source.labels)
        if not (free and found.get(one.subject) == source.bad):
            found[one.subject] = one.value
    return found


def _matches(event: Event, source: _Source) -> bool:
    return all(event.fields.get(key) == value for key, value in source.fields) and not any(
        event.fields.get(key) == value for key, value in source.without
    )


def _contradicted(evidence: Evidence, subject: str, states: Mapping[str, float], bad: Mapping[str, str]) -> bool:
    """Whether the state of the subject, or of every container in it, is known to be good."""
    known = [name for name in states if name == subject or _within(evidence, name, subject)]
    return bool(known) and not any(name in bad for name in known)


def _holder(evidence: Evidence, subject: str, bad: Mapping[str, str]) -> str:
    """The container of the pod `subject` that is listed already, else the subject."""
    return next((name for name in bad if _within(evidence, name, subject)), subject)


def _within(evidence: Evidence, container: str, pod: str) -> bool:
    """By their names; files of which the cluster is not known may show the same pod."""
    clusters = {cluster_of(evidence, one) for one in (container, pod)} - {""}
    alike = kind_of(container) == "container" and _path(container).startswith(f"{_path(pod)}/")
    return alike and len(clusters) < 2


def _path(subject: str) -> str:
    return subject.partition("/")[2].rpartition("@")[0] or subject.partition("/")[2]


def object_name(subject: str) -> str:
    """`server in llama-0` of `container/serving/llama-0/server@pods.txt`; the last name of any other object."""
    names = _path(subject).split("/")
    if kind_of(subject) == "container" and len(names) > 1:
        return f"{names[-1]} in {names[-2]}"
    return names[-1]


def _text(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _vital(
    evidence: Evidence, code: ClusterTrouble, signal: str, bad: Mapping[str, str], since: float | None = None
) -> Iterator[Vital]:
    """The number and the first names of the objects in `bad`, each with its details."""
    named: dict[str, str] = {}
    several = sum(kind_of(one.id) == "cluster" for one in evidence.subjects) > 1
    for subject, details in bad.items():
        cluster = cluster_of(evidence, subject) if several else ""
        name = f"{object_name(subject)} of {cluster}" if cluster else object_name(subject)
        named[name] = named.get(name) or details
    if not named:
        return
    shown = [f"{name} ({details})" if details else name for name, details in list(named.items())[:_NAMED]]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    yield Vital(signal, next(iter(bad)), float(len(named)), f"{', '.join(shown)}{more}", code.value, since)


_Computed = tuple[str, Mapping[str, str]]


def _gpus_gone(evidence: Evidence) -> _Computed:
    """Nodes that report more GPUs than pods may use."""
    have, usable = _values(evidence, "node.gpus_capacity"), _values(evidence, "node.gpus_allocatable")
    gone = {
        node: f"{have[node] - usable[node]:.0f} of {have[node]:.0f}"
        for node in usable
        if have.get(node, 0.0) > usable[node]
    }
    return "node.gpus_allocatable", gone


def _too_few_replicas(evidence: Evidence) -> _Computed:
    desired = _values(evidence, "workload.replicas_desired")
    ready = _values(evidence, "workload.replicas_ready") or _values(evidence, "workload.replicas_available")
    for subject, missing in _values(evidence, "workload.replicas_unavailable").items():
        ready.setdefault(subject, desired.get(subject, 0.0) - missing)
    short = {
        subject: f"{max(0.0, ready[subject]):.0f} of {desired[subject]:.0f}"
        for subject in ready
        if ready[subject] < desired.get(subject, 0.0)
    }
    return "workload.replicas_ready", short


def _quota_used_up(evidence: Evidence) -> _Computed:
    full: dict[str, str] = {}
    for one in evidence.readings_by_signal.get("quota.used_ratio", ()):
        if isinstance(one.value, str) or is_unknown(one.value) or one.value < 1.0 - _SMALLEST_ROOM:
            continue
        resource = dict(one.labels).get("resource", "")
        limit = _limit_of(evidence, one)
        full.setdefault(one.subject, f"{resource} {limit}".strip())
    return "quota.used_ratio", full


def _limit_of(evidence: Evidence, ratio: Reading) -> str:
    found = [
        one.value
        for one in evidence.readings_by_signal.get("quota.limit", ())
        if (one.subject, one.labels) == (ratio.subject, ratio.labels)
    ]
    return show("quota.limit", found[-1]) if found else ""


_COMPUTED: dict[ClusterTrouble, Callable[[Evidence], _Computed]] = {
    ClusterTrouble.GPUS_GONE: _gpus_gone,
    ClusterTrouble.TOO_FEW_REPLICAS: _too_few_replicas,
    ClusterTrouble.QUOTA_USED_UP: _quota_used_up,
}


def _values(evidence: Evidence, signal: str) -> dict[str, float]:
    return {
        one.subject: one.value
        for one in evidence.readings_by_signal.get(signal, ())
        if not isinstance(one.value, str) and not is_unknown(one.value) and not one.labels
    }
