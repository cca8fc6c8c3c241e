"""`kubectl describe` of pods, nodes, workloads and autoscalers, whole or in part."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.kubernetes import SIGNALS
from latdoctor.collectors.documents.kubernetes.describe import EVENT_ROW, read_object
from latdoctor.collectors.documents.kubernetes.described_lines import lines_of, objects
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_LONGEST = 400_000  # lines


def read(section: Section) -> Evidence:
    """What the described objects show. Raises ValueError where they show nothing."""
    gathered = Gathered(section)
    for one in objects(lines_of(section.text.split("\n")[:_LONGEST])):
        gathered.taken_at = section.taken_at
        read_object(gathered, one)
    found = gathered.evidence()
    if not found.readings and not found.events:
        raise ValueError("it shows no state and no event")
    return found


_PARTS = (
    r"Name:\s+\S",
    r"\s*(?:State|Last State):\s+(?:Waiting|Running|Terminated)\s*$",
    r"\s*Restart Count:\s+\d",
    r"\s*Type\s+Reason\s+Age\s+From\s+Message",
    r"\s*FirstSeen\s+LastSeen\s+Count\s+From\s+(?i:SubObjectPath)",
    r"(?:Capacity|Allocatable|Allocated resources):\s*$",
    r"Reference:\s+[A-Z]\w+/\S+\s*$",
    r"Min replicas:\s+\d",
    EVENT_ROW.pattern,
)
_SHOWN = (
    r"^\s*(?:State|Last State):\s+(?:Waiting|Running|Terminated)|^\s*Restart Count:|^\s*Type\s+Reason\s+Age"
    r"|^Min replicas:|^\s*(?:Normal|Warning)\s+[A-Z]\w+\s+\S|^Allocat|^Conditions:|^Pod Template:|^Node:\s"
    r"|^\s*FirstSeen\s+LastSeen|^Replicas:\s+\d|^Kind:\s+[A-Z]\w+|^\s*Resource\s+Used\s+Hard\s*$"
)
FORMAT = TextFormat(
    name="kubectl-describe",
    title="kubectl describe",
    begins=re.compile("^(?:" + "|".join(f"(?:{part})" for part in _PARTS) + ")"),
    confirms=re.compile(_SHOWN, re.MULTILINE),
    read=read,
    provides=SIGNALS,
    repeats=True,
    in_logs=True,
    quotes_logs=True,
    keeps=re.compile(r"[A-Z][A-Za-z -]{1,40}:\s"),
)
