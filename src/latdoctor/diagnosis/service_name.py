"""The name of the diagnosed service: its model and its deployment, where the target is only known by an address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.diagnosis.result import Check
from latdoctor.evidence.model import Evidence, SourceQuery, kind_of

_MODEL = "model"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w-]+(?:\.[\w-]+)*)"
# `10.2.0.7:8002`, `prometheus.example.com/prefix`, `a:8000 and 1 more`, as a target is called that has no name.
_ADDRESS = re.compile(rf"{_HOST}:\d{{1,5}}(?:/\S*)?(?: and \d+ more)?")
_HOST_ONLY = re.compile(r"[\w-]+(?:\.[\w-]+)+(?:/\S*)?")
_SHOWN = 2  # models or services in a name


def service_name(target: str, evidence: Evidence) -> str:
    """`org/llm (vllm, 3 instances)`, `intent (10.2.0.7:8002)`; `target` where it is a name, or none is known."""
    services = dict(evidence.services)
    if not (_ADDRESS.fullmatch(target) or (services and _HOST_ONLY.fullmatch(target))):
        return target
    models = _listed(sorted({name for one in evidence.subjects if (name := _model(one.id))}))
    if services:
        deployment = _listed(sorted(set(services.values())))
        instances = [subject.partition("/")[2] for subject in services]
        where = instances[0] if len(instances) == 1 else f"{len(instances)} instances"
        return f"{models} ({deployment}, {where})" if models else f"{deployment} ({where})"
    return f"{models} ({target})" if models else target


def _model(subject: str) -> str:
    """`org/llm` of `model/org/llm@b:8000`; empty for another kind of subject."""
    return subject.partition("/")[2].rpartition("@")[0] if kind_of(subject) == _MODEL else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def queries_of(checks: Sequence[Check], evidence: Evidence) -> Iterator[SourceQuery]:
    """The queries behind the comparisons of `checks`, those that fired first, each once."""
    known = {(one.signal, one.subject): one for one in evidence.queries}
    if not known:
        return
    reported: set[str] = set()
    for check in sorted(checks, key=lambda check: check.status != "fired"):
        for atom in check.atoms:
            signal = atom.signal.partition("{")[0]
            owners = evidence.lineage(atom.subject) if atom.subject else ()
            query = next((known[signal, owner] for owner in owners if (signal, owner) in known), None)
            if query and query.expression not in reported:
                reported.add(query.expression)
                yield SourceQuery(signal, atom.subject, query.expression, query.at)
