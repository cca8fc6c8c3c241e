"""Names of subjects as people call them: `GPU 1`, `replica checkout-2`."""

from __future__ import annotations

import re
from collections.abc import Set

from rich.cells import cell_len, set_cell_size

from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.evidence.model import kind_of

_NAME_WIDTH = 44
_ADDRESS = re.compile(r":\d{1,5}\b")
# Kinds of subjects that a cause can be limited to, the smallest part first.
_PARTS = ("gpu", "engine", "container", "pod", "replica", "server")


def part_of_service(cause: RankedCause, diagnosis: Diagnosis) -> str:
    """The part of the service that a cause is limited to: `GPU 1`, `replica checkout-2`, `3 GPUs`; else empty."""
    for kind in _PARTS:
        names = [name for name in cause.subjects if kind_of(name) == kind and _is_part(name)]
        known = {name for check in diagnosis.checks for name in check.subjects if kind_of(name) == kind}
        if names and (kind == "gpu" or len(known) > len(names)):
            return _distinct_name(names[0], known) if len(names) == 1 else f"{len(names)} {_noun(kind)}s"
    return ""


def _is_part(subject: str) -> bool:
    """Of servers only one of several services in one log is part of what was diagnosed: `server/vllm@compose.log`."""
    return kind_of(subject) != "server" or "@" in subject


def _distinct_name(subject: str, known: Set[str]) -> str:
    """The name of a subject, with its cluster or file where another one has the same name."""
    name, base = subject_name(subject), subject.partition("@")[0]
    alike = any(one != subject and one.partition("@")[0] == base for one in known)
    return f"{name} of {shortened(subject.partition('@')[2])}" if alike and " of " not in name else name


def subject_name(subject: str) -> str:
    """`GPU 1` of `gpu/1`, `GPU 1 of node-a` of `gpu/1@node-a`, `replica 0` of `replica/0@127.0.0.1:8000`."""
    kind, _, name = subject.partition("/")
    name, _, place = name.partition("@")
    name = name.removesuffix(".engine").removesuffix(".onnx")
    # A GPU is that of a machine only where there are several; an address is that of its exporter.
    machine = f" of {shortened(place)}" if kind == "gpu" and place and not _ADDRESS.search(place) else ""
    return f"{_noun(kind)} {shortened(name)}{machine}" if name else subject


def _noun(kind: str) -> str:
    return "GPU" if kind == "gpu" else kind


def shortened(name: str, width: int = _NAME_WIDTH) -> str:
    """A long name with its middle left out, in `width` columns or one more."""
    if cell_len(name) <= width:
        return name
    half = width // 2
    end = next(name[place:] for place in range(len(name) + 1) if cell_len(name[place:]) <= half)
    return f"{set_cell_size(name, half).rstrip()}…{end}"
