"""The images that the lab can pull: each is the command that its containers run, and nothing else."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

_REFERENCE = (sys.executable, "-m", "latdoctor.lab.cluster.reference_pod")
_SLOWER = 6.0  # the third release computes so much slower

REFERENCE = "lab/reference:1"
REFERENCE_NEXT = "lab/reference:2"  # a release as good as the first
REFERENCE_SLOW = "lab/reference:3"  # a bad release

# An image without a command needs one in the Pod.
IMAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lab/workload:1": (),
        "lab/workload:2": (),
        REFERENCE: (*_REFERENCE, "--set=model.version=v1"),
        REFERENCE_NEXT: (*_REFERENCE, "--set=model.version=v2"),
        REFERENCE_SLOW: (*_REFERENCE, "--set=model.version=v3", f"--slower={_SLOWER:g}"),
    }
)
_VARIABLE = re.compile(r"\$(\$?)\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def command_of(spec: Mapping[str, Any], image: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What a container runs: its own command or the image's, then its arguments, with `$(VARIABLE)` replaced.

    As the kubelet does: an unknown variable stays as it is, and `$$(VARIABLE)` is not replaced.
    """

    def value(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        return f"$({name})" if escaped else environment.get(name, match.group())

    words = [*(spec.get("command") or image), *spec.get("args", ())]
    return [_VARIABLE.sub(value, word) for word in words]
