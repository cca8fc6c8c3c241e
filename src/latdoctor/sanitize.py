"""Untrusted text: log lines, metric labels and file names made harmless before anyone reads them."""

from __future__ import annotations

import re
import unicodedata

TITLE = 150  # maximum columns of a title on a screen: not quite two lines of a terminal

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


def fitted(value: str, cells: int) -> str:
    """`value` on one line as `clean` gives it, in at most `cells` columns: what is longer ends in an ellipsis.

    A column is what a letter takes on a terminal; a character of Chinese, Japanese or Korean takes two.
    """
    safe = clean(value, 4 * cells)  # characters that take no column of their own are bounded too
    if len(safe) <= cells and safe.isascii():
        return safe
    from rich.cells import cell_len, set_cell_size

    return safe if cell_len(safe) <= cells else set_cell_size(safe, cells - 1).rstrip() + "…"


def counted(number: int, what: str) -> str:
    """`1 artifact`, `2 artifacts`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _is_safe(char: str) -> bool:
    # Cc control, Cf format (bidirectional overrides, zero width), Cs surrogates, Zl/Zp line separators.
    return char in "\t\r\n" or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
