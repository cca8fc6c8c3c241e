"""The cluster and the namespace that a kubectl command names: `$ kubectl --context west -n prod get pods`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMAND = re.compile(r"(?:^|[\s$#%>])(?:kubectl|oc|k|microk8s\.kubectl|k3s kubectl)\s([^|;&>]{1,400})")
_VALUE = r"(?:=|\s+)[\"']?([\w.:@/-]{1,200})"
_CONTEXT = re.compile(rf"(?:^|\s)--(?:context|cluster){_VALUE}")
_NAMESPACE = re.compile(rf"(?:^|\s)(?:--namespace|-n){_VALUE}|(?:^|\s)-n([\w.-]{{1,200}})")


@dataclass(frozen=True, slots=True)
class KubeCommand:
    """What a command selects; empty where it leaves that to the configuration."""

    context: str = ""
    namespace: str = ""


def kube_command(line: str) -> KubeCommand:
    """The command in a line with a prompt; nothing is selected by any other line."""
    found = _COMMAND.search(line)
    if found is None:
        return KubeCommand()
    context, namespace = _CONTEXT.search(found[1]), _NAMESPACE.search(found[1])
    # `arn:aws:eks:…:cluster/west`: what stands before an @ would be taken for the subject.
    return KubeCommand(
        context[1].replace("@", "-") if context else "", (namespace[1] or namespace[2]) if namespace else ""
    )
