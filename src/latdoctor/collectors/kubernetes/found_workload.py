"""Find the workload of a name: the object itself, and the selector of its Pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from latdoctor.cluster_api import FORBIDDEN, NOT_FOUND, ApiError
from latdoctor.collectors.kubernetes import NAME, resources
from latdoctor.collectors.kubernetes.api_reads import ApiReader, Object, Objects, Read
from latdoctor.collectors.kubernetes.failed_reads import gap_of, is_fatal
from latdoctor.collectors.kubernetes.resources import LABELS, WORKLOADS, Resource
from latdoctor.collectors.kubernetes.workload_name import WorkloadName
from latdoctor.evidence.model import Gap
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_NAMESPACES = Resource("namespaces", "Namespace", namespaced=False)
_SHOWN = 5
_OWNERS = 3  # a Pod's ReplicaSet, its Deployment, and what made that


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload as it is named. `kind`: of `workload_name`; empty for a whole namespace. `selector`: of its Pods.

    `objects`: itself and its owners. `pod`: the only Pod to read; empty for all.
    """

    name: WorkloadName
    kind: str = ""
    selector: str = ""
    objects: tuple[Object, ...] = ()
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """The workload, or None, and what could not be read. `is_over`: no further request would be answered."""

    workload: Workload | None
    gaps: tuple[Gap, ...] = ()
    is_over: bool = False


@dataclass(slots=True)
class _Candidates:
    """What the kinds that may have the name answered."""

    objects: dict[str, Object] = field(default_factory=dict)
    errors: list[tuple[Read, ApiError]] = field(default_factory=list)


def find(reader: ApiReader, name: WorkloadName, place: str) -> Search:
    """`place`: the cluster, for messages."""
    kinds = [kind for kind in ((name.kind,) if name.kind else WORKLOADS) if reader.serves(WORKLOADS[kind])]
    kinds = kinds if name.name else []
    reads = [Read(_NAMESPACES, "", name.namespace), *(Read(WORKLOADS[one], name.namespace, name.name) for one in kinds)]
    namespace, *answers = reader.read(reads)
    if isinstance(namespace, ApiError) and is_fatal(namespace):
        return Search(None, (gap_of(namespace, reads[0], _everything()),), is_over=True)
    gaps = tuple(_of_namespace(namespace, name, place))
    if gaps and gaps[0].code == GapCode.NOT_MATCHED:
        return Search(None, gaps)
    if not name.name:
        return Search(Workload(name), gaps)
    found = _Candidates()
    for kind, read, answer in zip(kinds, reads[1:], answers, strict=True):
        if isinstance(answer, Objects):
            found.objects[kind] = answer.found[0]
        elif answer.status != NOT_FOUND:
            found.errors.append((read, answer))
    if found.objects:
        kind = next(iter(found.objects))
        return Search(_workload(reader, name, kind, found.objects[kind]), gaps)
    if found.errors:
        failed = (gap_of(error, read, _everything()) for read, error in found.errors)
        return Search(None, (*gaps, *failed))
    return Search(None, (*gaps, _not_found(reader, name, kinds)))


def _of_namespace(answer: Objects | ApiError, name: WorkloadName, place: str) -> Iterator[Gap]:
    """That there is no such namespace, or that it is being deleted. One that may not be read is no gap."""
    if isinstance(answer, ApiError):
        if answer.status == NOT_FOUND:
            reason = f"{place} has no namespace {name.namespace}"
            step = "check the namespace, and the cluster: --kube-context NAME"
            yield Gap(NAME, reason, _everything(), next_step=step, code=GapCode.NOT_MATCHED)
        elif answer.status != FORBIDDEN:
            yield gap_of(answer, Read(_NAMESPACES, "", name.namespace), ())
    elif answer.found[0].get("status", {}).get("phase") == "Terminating":
        reason = f"namespace {name.namespace} is being deleted, with all that is in it"
        yield Gap(NAME, reason, (), next_step="find out who deleted it", code=GapCode.TERMINATING)


def _not_found(reader: ApiReader, name: WorkloadName, kinds: Sequence[str]) -> Gap:
    """Names what there is instead, the most alike first."""
    listed = [Read(one, name.namespace) for one in (resources.DEPLOYMENTS, resources.STATEFUL_SETS)]
    answers = [one for one in reader.read(listed) if isinstance(one, Objects)]
    known = [str(one["metadata"]["name"]) for answer in answers for one in answer.found]
    near = get_close_matches(name.name, known, _SHOWN, 0.5) or known[:_SHOWN]
    reason = f"namespace {name.namespace} has no {' or '.join(kinds)} {name.name}"
    step = f"it has {', '.join(clean(one, 80) for one in near)}" if near else "check the name: kubectl get all"
    return Gap(NAME, reason, _everything(), next_step=step, code=GapCode.NOT_MATCHED)


def _everything() -> tuple[str, ...]:
    from latdoctor.collectors.kubernetes import provided_signals

    return tuple(sorted(provided_signals()))


def _workload(reader: ApiReader, name: WorkloadName, kind: str, found: Object) -> Workload:
    if kind == "pod":
        owners = tuple(_owners(reader, name.namespace, found))
        return Workload(name, kind, "", owners, str(found["metadata"]["name"]))
    label = LABELS.get(kind)
    selector = f"{label}={name.name}" if label else selector_of(found.get("spec", {}).get("selector") or {})
    return Workload(name, kind, selector, (found,))


def _owners(reader: ApiReader, namespace: str, one: Object) -> Iterator[Object]:
    """The controllers above an object, as far as they are known and may be read."""
    by_kind = {resource.kind: resource for resource in (*WORKLOADS.values(), resources.REPLICA_SETS)}
    for _ in range(_OWNERS):
        owner = next((x for x in one["metadata"].get("ownerReferences", ()) if x.get("controller")), None)
        if owner is None or owner["kind"] not in by_kind:
            return
        (answer,) = reader.read([Read(by_kind[owner["kind"]], namespace, owner["name"])])
        if isinstance(answer, ApiError):
            return
        one = answer.found[0]
        yield one


def selector_of(selector: Mapping[str, object]) -> str:
    """A label selector as the parameter of a request."""
    labels = selector.get("matchLabels") or {}
    parts = [f"{key}={value}" for key, value in labels.items()] if isinstance(labels, Mapping) else []
    expressions = selector.get("matchExpressions") or ()
    for one in expressions if isinstance(expressions, Sequence) else ():
        key, values = one["key"], ",".join(one.get("values") or ())
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        parts.append(forms.get(one["operator"], f"!{key}"))
    return ",".join(parts)
