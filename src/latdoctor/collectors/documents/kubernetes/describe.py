"""Objects in the words of `kubectl describe`: pods, nodes, workloads, autoscalers, and the events of any other object.

A pasted text may have lost its indentation, its beginning or its end, so keys count and not their depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents.kubernetes import conditions, containers, tables
from latdoctor.collectors.documents.kubernetes.columns import Heading, heading, row
from latdoctor.collectors.documents.kubernetes.conditions import ReportedCondition
from latdoctor.collectors.documents.kubernetes.containers import (
    CRASH_LOOP,
    ContainerFacts,
    Ended,
    described_probe,
    put,
)
from latdoctor.collectors.documents.kubernetes.describe_node import read_node
from latdoctor.collectors.documents.kubernetes.described_lines import (
    DescribedLine,
    conditions_in,
    first_line,
    next_key,
)
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.kubernetes_quantity import quantity

_CONTAINER = re.compile(r"\s*([a-z0-9](?:[-a-z0-9.]{0,61}[a-z0-9])?):\s*$")
_RESOURCE = re.compile(r"\s*([a-z0-9][\w./-]*?):?\s+(\d\S*)(?:\s|$)")
_REPLICAS = re.compile(r"(\d{1,6}) (desired|updated|total|available|unavailable|current|ready)")
_HPA_PODS = re.compile(r"\w+ pods")
_EVENT_HEADING = re.compile(r"\s*(?:Type\s+Reason\s+Age|FirstSeen\s+LastSeen\s+Count\s+From)\s")
EVENT_ROW = re.compile(
    r"\s*(?:Normal|Warning)\s+[A-Za-z]\w*\s+(?:<unknown>|<invalid>|\d{1,6}[smhdy]\w{0,12})(?: \(x\d+ over \S+\))?\s+\S"
)
_EVENTS = Heading(("type", "reason", "age", "from", "message"), (0, 9, 20, 26, 44))
_SECTIONS = ("Containers", "Init Containers", "Ephemeral Containers")
_AFTER = frozenset({"Conditions", "Volumes", "Events", "QoS Class", "Node-Selectors", "Tolerations"})
_OF_CONTAINER = frozenset(
    {
        "Args", "Command", "Container ID", "Devices", "Environment", "Environment Variables from", "Host Port",
        "Host Ports", "Image", "Image ID", "Last State", "Limits", "Liveness", "Mounts", "Port", "Ports", "Readiness",
        "Ready", "Requests", "Restart Count", "Restart Policy", "SeccompProfile", "Startup", "State",
    }
)  # fmt: skip
_STARTS = frozenset({"Container ID", "Image", "Image ID", "Port", "Ports", "State", "Limits", "Command", "Args"})
_JUST_ENDED = 300.0  # seconds: the longest wait of a crash loop, so the text is at most this much younger


def read_object(gathered: Gathered, lines: Sequence[DescribedLine]) -> None:
    """Add what one described object shows."""
    keys = {line.key for line in lines}
    head = _head(lines)
    if "API Version" in head:
        subject = _custom(gathered, head, lines)
    elif "Min replicas" in keys or "Reference" in keys:
        subject = _autoscaler(gathered, head, lines)
    elif keys & {"Roles", "Allocatable", "Allocated resources"}:
        subject = read_node(gathered, head.get("Name", ""), head.get("Unschedulable", ""), lines)
    elif any(_QUOTA_HEADING.match(line.text) for line in lines):
        subject = _quota(gathered, head, lines)
    elif "Pod Template" in keys or "Replicas" in head:
        subject = _workload(gathered, head, lines)
    elif keys & {*_SECTIONS, "QoS Class", "Restart Count", "Last State", "State"} or "Node" in head:
        subject = _pod(gathered, head, lines)
    else:
        subject = _custom(gathered, head, lines)
    _events(gathered, lines, subject)


def _head(lines: Sequence[DescribedLine]) -> dict[str, str]:
    """The first value of each key before the parts of the object."""
    found: dict[str, str] = {}
    for line in lines:
        if line.key in (*_SECTIONS, "Pod Template", "Conditions", "Capacity", "Events", "State", "Last State"):
            break
        if line.key:
            found.setdefault(line.key, line.value)
    return found


def _names(head: Mapping[str, str]) -> tuple[str, str]:
    return head.get("Namespace", ""), head.get("Name", "") or "unnamed"


# Pods


def _pod(gathered: Gathered, head: Mapping[str, str], lines: Sequence[DescribedLine]) -> str:
    node = head.get("Node", "").partition("/")[0]
    found = list(_containers(lines))
    ended = [one.ended.finished for one in found if one.waiting_reason == CRASH_LOOP and one.ended]
    known = [time for time in ended if time is not None]
    if known:
        gathered.taken_at = min(gathered.taken_at, max(known) + _JUST_ENDED)
    subject = gathered.pod(*_names(head), "" if node in ("", "<none>") else node)
    line = first_line(lines, "Status")
    status = head.get("Status", "")
    if status:
        gathered.reading("pod.status", subject, head.get("Reason") or status, line)
        gathered.reading("pod.pending", subject, float(status.startswith("Pending")), line)
    if head.get("Reason") == "Evicted":
        gathered.reading("pod.evicted", subject, 1.0, line)
    if status.startswith("Failed") and head.get("Reason"):
        gathered.kube_event(KubeEvent(head["Reason"], head.get("Message", "")), subject, line)
    for one in found:
        put(gathered, subject, one)
    restarts = [one.restarts for one in found if one.restarts is not None]
    if restarts:
        gathered.reading("pod.restarts", subject, sum(restarts), found[0].line)
    for name, state, _, number in conditions_in(lines):
        if name == "Ready" and not status.startswith("Succeeded"):
            gathered.reading("pod.ready", subject, float(state == "True"), number)
        elif name == "PodScheduled" and state == "False":
            gathered.reading("pod.unschedulable", subject, 1.0, number)
    return subject


def _containers(lines: Sequence[DescribedLine]) -> Iterator[ContainerFacts]:
    """The containers of a pod or of a template, in their order."""
    facts: ContainerFacts | None = None
    block = ""
    states: dict[str, dict[str, str]] = {}
    inside = not any(line.key in _SECTIONS for line in lines)
    for index, line in enumerate(lines):
        if line.key in _SECTIONS and not line.value:
            inside = True
            continue
        if inside and line.key in _AFTER:
            inside = False
        if not inside:
            continue
        name = _CONTAINER.match(line.text)
        if name and next_key(lines, index) in _STARTS:
            if facts is not None:
                yield _with_states(facts, states)
            facts, states, block = ContainerFacts(name[1], line.number), {}, ""
            continue
        if line.key in ("State", "Last State", "Restart Count") and facts is None:
            facts = ContainerFacts("container", line.number)  # of a text without its beginning
        if facts is not None:
            block = _of_container(facts, states, block, line)
    if facts is not None:
        yield _with_states(facts, states)


def _of_container(facts: ContainerFacts, states: dict[str, dict[str, str]], block: str, line: DescribedLine) -> str:
    """Take one line of a container; returns the block that the next line may belong to."""
    key, value = line.key, line.value
    if key in ("State", "Last State") and value in ("Waiting", "Running", "Terminated"):
        states.setdefault(key, {"": value})
        return key
    if key in ("Limits", "Requests"):
        return key
    if block in ("State", "Last State") and key in ("Reason", "Message", "Exit Code", "Started", "Finished", "Signal"):
        states[block].setdefault(key, value)
        return block
    if block in ("Limits", "Requests") and key not in _OF_CONTAINER:
        found = _RESOURCE.match(line.text)
        if found:
            (facts.limits if block == "Limits" else facts.requests).setdefault(found[1], found[2])
        return block
    if key == "Ready":
        facts.ready = {"True": True, "False": False}.get(value)
    elif key == "Restart Count":
        facts.restarts = quantity(value)
    elif key in ("Liveness", "Readiness", "Startup") and (probe := described_probe(key.lower(), value)):
        facts.probes.append(probe)
    return "" if key in _OF_CONTAINER else block


def _with_states(facts: ContainerFacts, states: Mapping[str, Mapping[str, str]]) -> ContainerFacts:
    now, last = states.get("State", {}), states.get("Last State", {})
    facts.running = now.get("") == "Running"
    facts.running_since = moment(now.get("Started", ""))
    if now.get("") == "Waiting":
        facts.waiting_reason, facts.waiting_message = now.get("Reason", ""), now.get("Message", "")
    ended = now if now.get("") == "Terminated" else last if last.get("") == "Terminated" else None
    if ended:
        code = quantity(ended.get("Exit Code", ""))
        if code is None and (signal := quantity(ended.get("Signal", ""))):
            code = 128 + signal
        started, finished = moment(ended.get("Started", "")), moment(ended.get("Finished", ""))
        facts.ended = Ended(ended.get("Reason", ""), code, started, finished, ended.get("Message", ""))
    return facts


# Workloads and autoscalers


def _workload(gathered: Gathered, head: Mapping[str, str], lines: Sequence[DescribedLine]) -> str:
    keys = {line.key for line in lines}
    owned = head.get("Controlled By", "")
    kind = "replicaset" if owned.startswith("Deployment/") else "deployment" if "StrategyType" in keys else ""
    subject = gathered.workload(kind or ("statefulset" if "Update Strategy" in keys else "workload"), *_names(head))
    counts = {name: float(number) for number, name in _REPLICAS.findall(head.get("Replicas", ""))}
    line = first_line(lines, "Replicas")
    for name in ("desired", "updated", "available", "ready", "unavailable"):
        gathered.reading(f"workload.replicas_{name}", subject, counts.get(name), line)
    for one in _containers(lines):
        put(gathered, subject, one)
    for name, state, cells, number in conditions_in(lines):
        found = ReportedCondition(name, state, cells[0] if cells else "", line=number)
        conditions.put_workload(gathered, subject, found)
    return subject


def _autoscaler(gathered: Gathered, head: Mapping[str, str], lines: Sequence[DescribedLine]) -> str:
    subject = gathered.scaler(*_names(head), head.get("Reference", ""))
    pods = next((line for line in lines if _HPA_PODS.fullmatch(line.key)), lines[0])
    counts = {name: float(number) for number, name in _REPLICAS.findall(pods.value)}
    tables.put_autoscaler(
        gathered,
        subject,
        pods.number,
        replicas=counts.get("current"),
        desired=counts.get("desired"),
        least=quantity(head.get("Min replicas", "")),
        most=quantity(head.get("Max replicas", "")),
    )
    in_metrics = False
    for line in lines:
        if line.key == "Metrics":
            in_metrics = True
        elif line.key == "Min replicas":
            in_metrics = False
        elif in_metrics and (metric := _METRIC.match(line.text)):
            tables.put_targets(gathered, subject, metric[2], line.number, _metric_name(metric[1]))
    if "Current CPU utilization" in head:
        text = f"{head['Current CPU utilization'].rstrip('%')}/{head.get('Target CPU utilization', '')}"
        text = text if text.startswith("<unknown>") else text.replace("/", "%/", 1)
        tables.put_targets(gathered, subject, text, first_line(lines, "Current CPU utilization"), "cpu")
    for name, state, cells, number in conditions_in(lines):
        found = ReportedCondition(name, state, cells[0] if cells else "", " ".join(cells[1:]), line=number)
        conditions.put_autoscaler(gathered, subject, found)
    return subject


_QUOTA_HEADING = re.compile(r"\s*Resource\s+Used\s+Hard\s*$")
_QUOTA_ROW = re.compile(r"\s*([a-z][\w./-]{0,120})\s+(\d\S{0,40})\s+(\d\S{0,40})\s*$")


def _quota(gathered: Gathered, head: Mapping[str, str], lines: Sequence[DescribedLine]) -> str:
    subject = gathered.workload("quota", *_names(head))
    for line in lines:
        if found := _QUOTA_ROW.match(line.text):
            tables.put_quota(gathered, subject, found[1], found[2], found[3], line.number)
    return subject


_METRIC = re.compile(r"\s*(\S.*?):\s+(\S+(?: \([^)]*\))? / \S+)\s*$")
_NAMED = re.compile(r'"([^"]+)"|resource (\S+)')


def _metric_name(text: str) -> str:
    found = _NAMED.search(text)
    return (found[1] or found[2]) if found else text


# Custom resources: InferenceService, Knative's Revision, RayService and others


def _custom(gathered: Gathered, head: Mapping[str, str], lines: Sequence[DescribedLine]) -> str:
    """Conditions that are false, of keys in alphabetical order: message, reason, status, type."""
    subject = tables.subject_of(gathered, head.get("Kind", "object"), *_names(head))
    found: dict[str, str] = {}
    for line in lines:
        if line.key in ("Last Transition Time", "Message", "Reason", "Status", "Type", "Exit Code"):
            found[line.key] = line.value
        if line.key == "Type" and "Status" in found:
            conditions.put_custom(gathered, subject, found, line.number)
        elif line.key == "Exit Code":
            containers.put_end(gathered, subject, Ended(exit_code=quantity(line.value)), line.number)
        if line.key in ("Type", "Exit Code"):
            found = {}
    return subject


# Conditions and events, of any object


def _events(gathered: Gathered, lines: Sequence[DescribedLine], subject: str) -> None:
    head = _EVENTS
    for line in lines:
        if _EVENT_HEADING.match(line.text):
            head = heading(line.text)
        elif EVENT_ROW.match(line.text) or (head is not _EVENTS and re.search(r"\b(?:Normal|Warning)\b", line.text)):
            cells = row(line.text, head)
            if cells.get("type") not in ("Normal", "Warning"):
                continue
            gathered.kube_event(tables.event_of(gathered, cells), subject, line.number)
