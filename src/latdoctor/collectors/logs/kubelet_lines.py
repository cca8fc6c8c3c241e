"""Lines of a kubelet about pods that it evicts, probes that fail, images that it cannot pull, and its node.

They mean the same as the events that Kubernetes keeps of them, which are gone after an hour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.model import Value

_PRESSURES = {"memory": "memory", "ephemeral-storage": "disk", "inodes": "disk", "pids": "pid", "pid": "pid"}
# klog's head. The prefix of a carrier may have been taken for the program's.
_KLOG = re.compile(r"(?:^|\s)(?:[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}\s+\d{1,10} )?[a-z_]{3,60}\.go:\d{1,5}\] ")
_RECLAIM = re.compile(
    r"[Ee]viction manager: (?:attempting to reclaim|must evict pod\(s\) to reclaim)"
    r"(?:\" resourceName=\"| )([a-z-]{2,40})"
)
_EVICTED = re.compile(
    r"[Ee]viction manager: pod (?:(?P<old>\S{1,300}?)(?:\([\w-]{1,60}\))? )?is evicted successfully"
    r"(?:\" pod=\"(?P<pod>[^\"]{1,300})\")?"
)
_NOT_READY = re.compile(r"Node became not ready(?:\" node=\"(?P<node>[^\"]{1,250})\")?")
_NOT_READY_WHY = re.compile(r"\"message\":\"([^\"]{1,300})|Message:([^}]{1,300})")
_PROBE = re.compile(
    r"\"Probe failed\" probeType=\"(?P<probe>Startup|Liveness|Readiness)\" pod=\"(?P<pod>[^\"]{1,300})\""
    r".{0,120}?containerName=\"(?P<container>[^\"]{1,250})\""
)
_PROBE_KILL = re.compile(
    r"Container (?P<container>[\w.-]{1,250}) failed (?P<probe>startup|liveness) probe, will be restarted"
)
_START = re.compile(
    r"failed to \\?\"StartContainer\\?\" for \\?\"(?P<container>[\w.-]{1,250})\\?\" with "
    r"(?P<why>CrashLoopBackOff|ImagePullBackOff|ErrImagePull)\b"
)
_POD = re.compile(r"\bpod=\"([^\"]{1,300})\"")
_IMAGE = re.compile(
    r"\"Failed to pull image\".{0,2000}? image=\"(?P<image>[^\"]{1,400})\""
    r"|PullImage \\?\"(?P<cri>[^\"\\]{1,400})\\?\" from image service failed"
)


def find(line: LogLine) -> Iterator[Found]:
    """What a line of a kubelet reports; nothing for lines of other programs."""
    message = line.message
    if line.process != "kubelet" and not _KLOG.search(message):
        return
    if reclaim := _RECLAIM.search(message):
        kind = _PRESSURES.get(reclaim[1], reclaim[1])
        yield Found("kube.node_pressure", {"kind": kind, "reason": "eviction manager"})
    elif evicted := _EVICTED.search(message):
        yield Found("kube.evicted", _known({"pod": evicted["pod"] or evicted["old"] or ""}))
    elif ready := _NOT_READY.search(message):
        why = _NOT_READY_WHY.search(message)
        known = {"node": ready["node"] or "", "why": (why[1] or why[2]).strip() if why else ""}
        yield Found("kube.node_not_ready", _known(known))
    elif kill := _PROBE_KILL.search(message):
        yield Found("kube.probe_kill", _of_pod(message, {"probe": kill["probe"], "container": kill["container"]}))
    elif probe := _PROBE.search(message):
        known = {"probe": probe["probe"].lower(), "container": probe["container"], "pod": probe["pod"]}
        yield Found("kube.probe_failed", _known(known))
    elif start := _START.search(message):
        signal = "kube.crash_loop" if start["why"] == "CrashLoopBackOff" else "kube.image_pull_failed"
        yield Found(signal, _of_pod(message, {"reason": start["why"], "container": start["container"]}))
    elif image := _IMAGE.search(message):
        yield Found("kube.image_pull_failed", _of_pod(message, {"image": image["image"] or image["cri"]}))


def _of_pod(message: str, known: dict[str, str]) -> dict[str, Value]:
    pod = _POD.search(message)
    return _known({**known, "pod": pod[1] if pod else ""})


def _known(fields: dict[str, str]) -> dict[str, Value]:
    return {name: text for name, text in fields.items() if text}


KIND = LineKind(
    "kubelet",
    (rb"viction manager: ", rb"Node became not ready", rb"Probe failed", rb"probe, will be restarted",
     rb"StartContainer", rb"Failed to pull image", rb"from image service failed"),
    lambda artifact: EventLines(artifact, find),
)  # fmt: skip
