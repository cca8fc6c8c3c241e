"""Untrusted text: log lines, metric labels and file names made harmless before anyone reads them."""

from __future__ import annotations

import re
import unicodedata

# CSI, OSC/DCS/PM/APC/SOS strings, and two-byte escapes: dropped whole, so that no half of one is left behind.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?"
)


def clean(value: str, limit: int = 2000) -> str:
    """`value` on one line, without terminal control sequences, control or bidirectional characters.

    Text longer than `limit` characters is cut and ends in an ellipsis.
    """
    if len(value) <= limit and value.isprintable():  # as nearly all are: nothing of what is left out is printable
        return value
    kept = _ESCAPES.sub("", value[: limit * 4])
    safe = "".join(" " if char in "\t\r\n" else char for char in kept if _is_safe(char))
    cut = len(safe) > limit or len(value) > limit * 4
    return safe[: limit - 1] + "…" if cut else safe


def _is_safe(char: str) -> bool:
    # Cc control, Cf format (bidirectional overrides, zero width), Cs surrogates, Zl/Zp line separators.
    return char in "\t\r\n" or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
