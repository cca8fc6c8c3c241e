"""Parameters of a playbook that a diagnosis answers: the node to drain, the Pod to replace, the container to change.

Such a parameter is called as the kind of the subject is: `node` is answered by `node/gpu-7@lab`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from latdoctor.errors import UsageError
from latdoctor.evidence.model import kind_of
from latdoctor.remediation.playbook import Playbook

_KINDS = ("node", "pod", "container")
_LOCAL = "local"  # a node whose name is not known


def diagnosed_names(playbook: Playbook, subjects: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """For each parameter without a default the names that `subjects` have for it, each once and in their order.

    A parameter for which they have none is left out.
    """
    found: dict[str, dict[str, None]] = {}
    needed = {one.name for one in playbook.parameters if one.default is None and one.name in _KINDS}
    for subject in subjects:
        if (kind := kind_of(subject)) in needed:
            name = subject.partition("/")[2].partition("@")[0].rpartition("/")[2]
            if name and name != _LOCAL:
                found.setdefault(kind, {})[name] = None
    return {kind: tuple(names) for kind, names in found.items()}


def with_diagnosed(playbook: Playbook, settings: Mapping[str, str], subjects: Iterable[str]) -> Mapping[str, str]:
    """`settings` with what `subjects` say of the parameters that are not set.

    Raises UsageError where they name several things for one parameter.
    """
    found = dict(settings)
    for parameter, names in diagnosed_names(playbook, subjects).items():
        if parameter in settings:
            continue
        if len(names) > 1:
            raise UsageError(
                f"the diagnosis names {len(names)} {parameter}s: {', '.join(names)}",
                where=playbook.id,
                next_step=f"choose one: --set {parameter}={names[0]}",
            )
        found[parameter] = names[0]
    return found
