"""The kinds of lines that are read besides the facts of `patterns.py`, and what finds them all in raw bytes."""

from __future__ import annotations

import re

from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.patterns import FACT_HINTS

# One per line, sorted by name.
LINE_KINDS: tuple[LineKind, ...] = ()

# A line without any of these contains nothing that is read.
CANDIDATE = re.compile(b"|".join([FACT_HINTS.pattern, *(needle for kind in LINE_KINDS for needle in kind.needles)]))
