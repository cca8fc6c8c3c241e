"""The workload that a user names: `NAMESPACE/NAME`, `NAMESPACE/KIND/NAME`, or all of a `NAMESPACE`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_KINDS = {
    "deploy": "deployment",
    "deployments": "deployment",
    "sts": "statefulset",
    "statefulsets": "statefulset",
    "po": "pod",
    "pods": "pod",
    "isvc": "inferenceservice",
    "lws": "leaderworkerset",
    "dgd": "dynamographdeployment",
}
KINDS = (
    "deployment",
    "statefulset",
    "leaderworkerset",
    "inferenceservice",
    "dynamographdeployment",
    "rollout",
    "pod",
)  # in the order in which a name without a kind is looked for


@dataclass(frozen=True, slots=True)
class WorkloadName:
    """A namespace, and a name in it (empty: all of its workloads) of a kind (empty: of any)."""

    namespace: str
    name: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)


def parse_workload(text: str) -> WorkloadName:
    """Raises ValueError for a text of no such form."""
    namespace, *rest = text.strip().split("/")
    kind, name = ("", *rest)[-2:] if rest else ("", "")
    kind = _KINDS.get(kind.lower(), kind.lower())
    if len(rest) > 2 or not _NAMESPACE.fullmatch(namespace) or (rest and not _NAME.fullmatch(name)):
        raise ValueError(f"is no name of a workload (got {text!r})")
    if kind not in ("", *KINDS):
        raise ValueError(f"{kind!r} is none of the kinds {', '.join(KINDS)}")
    return WorkloadName(namespace, name, kind)
