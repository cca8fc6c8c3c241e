"""The machine that a shell prompt names: `root@node-a:~# nvidia-smi -q`, `[admin@node-a ~]$ lspci -vv`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latdoctor.collectors.logs.line_prefix import host_of
from latdoctor.collectors.machine_identity import is_local
from latdoctor.evidence.model import Evidence, MachineName, Origin

_LONGEST = 160  # characters of a prompt
_PROMPT = re.compile(r"(?:\([\w.-]{1,80}\) )?\[?[\w.-]{1,64}@([\w.-]{1,253})(?:[: ][^#$%\n]{0,200})?\]?[#$%] ?\S")
# A container's prompt names the container (by 12 digits) or the Pod (with a random ending), not the machine.
_CONTAINER = re.compile(r"[0-9a-f]{12}|.*-[bcdfghjklmnpqrstvwxz2456789]{5}")


def machine_of_prompt(line: str) -> str:
    """The machine that the prompt in `line` names; empty where there is no prompt, or that of a container."""
    prompt = _PROMPT.match(line.lstrip()) if "@" in line[:_LONGEST] else None
    host = host_of(prompt[1]) if prompt else ""
    return "" if _CONTAINER.fullmatch(host) else host


def machine_of(found: Evidence, before: Sequence[str], artifact: str) -> MachineName | None:
    """The machine of a part of a text that shows GPUs of where it was printed; `before`: the lines before it."""
    if found.machines or not any(is_local(one.id) for one in found.subjects):
        return None
    for number in range(len(before), 0, -1):
        if host := machine_of_prompt(before[number - 1]):
            return MachineName("node/local", host, Origin(artifact, f"line {number}"))
    return None
