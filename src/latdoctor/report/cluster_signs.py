"""What is wrong in a cluster, in words: `crash loop: llama-7c9f-x2x7k`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from latdoctor.diagnosis.cluster_troubles import ClusterTrouble
from latdoctor.diagnosis.result import Diagnosis, Vital
from latdoctor.report import time_scope
from latdoctor.report.text_utils import WIDTH, wrapped

WORDS = {
    ClusterTrouble.NODE_NOT_READY: "node not ready: {}",
    ClusterTrouble.GPUS_GONE: "GPUs gone: {}",
    ClusterTrouble.MEMORY_PRESSURE: "memory pressure: {}",
    ClusterTrouble.DISK_PRESSURE: "disk pressure: {}",
    ClusterTrouble.PID_PRESSURE: "too few process ids: {}",
    ClusterTrouble.NETWORK_UNAVAILABLE: "network not set up: {}",
    ClusterTrouble.OOM_KILLED: "killed for memory (OOMKilled): {}",
    ClusterTrouble.CRASH_LOOP: "crash loop: {}",
    ClusterTrouble.IMAGE_PULL: "image not pulled: {}",
    ClusterTrouble.START_FAILED: "container not started: {}",
    ClusterTrouble.EVICTED: "evicted: {}",
    ClusterTrouble.PENDING: "pending: {}",
    ClusterTrouble.QUOTA_USED_UP: "quota used up: {}",
    ClusterTrouble.CREATE_REFUSED: "pods not created: {}",
    ClusterTrouble.VOLUME_FAILED: "volume not mounted: {}",
    ClusterTrouble.ROLLOUT_STALLED: "rollout stalled: {}",
    ClusterTrouble.TOO_FEW_REPLICAS: "too few replicas: {}",
    ClusterTrouble.AUTOSCALER_LIMITED: "autoscaler wants more than its maximum: {}",
    ClusterTrouble.AUTOSCALER_BLIND: "autoscaler without its metric: {}",
    ClusterTrouble.PROBE_KILL: "restarted after failed probes: {}",
    ClusterTrouble.SCALE_UP_REFUSED: "no node added for {}",
    ClusterTrouble.ADMISSION_FAILED: "refused by its node: {}",
    ClusterTrouble.PREEMPTED: "preempted: {}",
    ClusterTrouble.NODE_REBOOTED: "node rebooted: {}",
    ClusterTrouble.CORDONED: "cordoned: {}",
    ClusterTrouble.OTHER: "other warnings: {}",
}
_CODES = frozenset(ClusterTrouble)
_AREAS = frozenset({"container", "hpa", "kube", "node", "pod", "quota", "workload"})
_MOST_LINES = 4


def own(diagnosis: Diagnosis) -> tuple[Vital, ...]:
    """The vital signs that are of the cluster: of its pods, containers, nodes and autoscalers."""
    return tuple(one for one in diagnosis.vitals if one.signal.partition(".")[0] in _AREAS)


def reports(diagnosis: Diagnosis) -> bool:
    """Whether the cluster itself reports that something is wrong."""
    return any(_is_trouble(one) and one.part != ClusterTrouble.CORDONED for one in diagnosis.vitals)


def lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The kinds of trouble, the gravest first, in at most four lines; of those without room only their number."""
    phrases = [_phrase(diagnosis, one) for one in diagnosis.vitals if _is_trouble(one)]
    line, printed = "", 0
    for number, phrase in enumerate(phrases):
        longer = f"{line} · {phrase}" if line else f" {phrase}"
        if cell_len(longer) <= WIDTH:
            line = longer
            continue
        parts = [*([line] if line else []), *wrapped(phrase, " ", "   ", hyphens=False)]
        if printed + len(parts) > _MOST_LINES:
            left = len(phrases) - number
            yield from [line] if line else []
            yield f" and {left} more kinds of trouble (-o json)" if left > 1 else f" {phrase}"[:WIDTH]
            return
        yield from parts[:-1]
        printed, line = printed + len(parts) - 1, parts[-1]
    if line:
        yield line


def _is_trouble(sign: Vital) -> bool:
    """The tail has a part of the name "other" too."""
    return sign.part in _CODES and sign.signal.partition(".")[0] in _AREAS


def _phrase(diagnosis: Diagnosis, sign: Vital) -> str:
    words = WORDS[ClusterTrouble(sign.part)].format(sign.shown)
    return f"{words} since {time_scope.moment(diagnosis, sign.since)}" if sign.since is not None else words
