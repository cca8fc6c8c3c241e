"""Tables of `kubectl get`, `kubectl events` and `kubectl top`, with or without headings, also several in a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from latdoctor.collectors.documents.kubernetes import SIGNALS
from latdoctor.collectors.documents.kubernetes.columns import Heading, heading, row
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.tables import TABLES, Row, pod, repeated_pods
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_LONGEST = 200_000  # lines
_WIDEST = 4000  # characters of a line

_HEADINGS = (
    r"(?:NAMESPACE\s+)?NAME\s+URL\s+(?:READY|LATESTCREATED)\b",
    r"(?:NAMESPACE\s+)?NAME\s+(?:READY|STATUS|REFERENCE|DESIRED|CPU\(cores\)|GPUS?\b|nvidia\.com/gpu)",
    r"(?:NAMESPACE\s+)?NAME\s+AGE\s+REQUEST\b",
    r"(?:NAMESPACE\s+)?POD\s+NAME\s+CPU\(cores\)",
    r"(?:NAMESPACE\s+)?LAST SEEN\s+(?:FIRST SEEN|TYPE|COUNT)\b",
)
# Custom columns of events, whatever they are called.
_EVENT_COLUMNS = r"(?=.*\b(?i:reason)\b)(?=.*\b(?i:message|note)\b)[A-Za-z][\w().-]*(?:\s{2,}[A-Za-z][\w().-]*){2,}\s*"
_POD_STATUS = (
    r"Running|Pending|Succeeded|Failed|Unknown|Completed|Error|OOMKilled|Evicted|Terminating|NotReady|ContainerCreating"
    r"|PodInitializing|CrashLoopBackOff|ImagePullBackOff|ErrImagePull|Create\w+Error|Init:\S+|UnexpectedAdmissionError"
    r"|OutOf\S+|ContainerStatusUnknown"
)
_POD_ROW = (
    r"(?P<namespace>[a-z0-9-]+\s+)?(?:pod/)?[a-z0-9][a-z0-9.-]*\s+\d+/\d+\s+"
    rf"(?:{_POD_STATUS})\s+\d+(?: \(\S+ ago\))?\s+\d+[smhdy]"
)
_EVENT_ROW = (
    r"(?P<namespace>[a-z0-9-]+\s+)?\d+[smhd]\w*(?: \(x\d+ over \S+\))?\s+"
    r"(?:Normal|Warning)\s+[A-Z]\w+\s+[A-Za-z.]+/[a-z0-9]\S*\s+\S"
)
_HEADING = re.compile(rf"\s{{0,12}}(?:{'|'.join(_HEADINGS)})|{_EVENT_COLUMNS}$")
_ANY_HEADING = re.compile(r"\s{0,12}(?:NAMESPACE\s+)?NAME\s+[A-Z][A-Z() -]*(?:\s{2,}[A-Z][A-Z():% -]*)*\s*$")
_GAP = re.compile(r"\s{2,}")
_POD_NAMES = ("name", "ready", "status", "restarts", "age")
_WIDE_NAMES = ("ip", "node", "nominated_node", "readiness_gates")
_EVENT_NAMES = ("last_seen", "type", "reason", "object", "message")
_ROWS = (
    (re.compile(rf"\s{{0,12}}(?:{_POD_ROW})"), _POD_NAMES, _WIDE_NAMES),
    (re.compile(rf"\s{{0,12}}(?:{_EVENT_ROW})"), _EVENT_NAMES, ()),
)
Reader = Callable[[Gathered, Row, int], None]


def read(section: Section) -> Evidence:
    """What the tables show. Raises ValueError where no row could be read."""
    gathered = Gathered(section)
    rows = list(_rows(section.text.split("\n")[:_LONGEST]))
    if not rows:
        raise ValueError("it lists no object of a kind that is read")
    times = repeated_pods(gathered, [(cells, number) for reader, cells, number in rows if reader is pod])
    for read_row, shown, number in rows:
        gathered.row_time = times.get(number)
        read_row(gathered, shown, number)
    return gathered.evidence()


def _rows(lines: Sequence[str]) -> Iterator[tuple[Reader, Row, int]]:
    """The rows with what reads them; those below an unknown heading are left out, and after it a row may lack one."""
    head: Heading | None = None
    reader: Reader | None = None
    for number, line in enumerate(lines):
        if not line.strip():
            head, reader = (head, reader) if reader else (None, None)
        elif len(line) > _WIDEST:
            continue
        elif _HEADING.match(line) or _ANY_HEADING.match(line):
            head = heading(line)
            reader = _reader(head)
        elif reader is not None or head is None:
            assumed = _assumed(line) if head is None else None
            found = assumed or ((head, reader) if head and reader else None)
            cells = row(line, found[0]) if found else {}
            if found and cells:
                yield found[1], cells, number


def _reader(head: Heading) -> Reader | None:
    names = set(head.names)
    return next((reader for needed, reader in TABLES if needed <= names), None)


def _assumed(line: str) -> tuple[Heading, Reader] | None:
    """The usual headings for a row that was pasted without them, as `grep` leaves it."""
    for pattern, names, further in _ROWS:
        found = pattern.match(line)
        if not found:
            continue
        shown = ("namespace", *names) if found["namespace"] else names
        cells = len(_GAP.split(line.strip()))
        shown = (*shown, *further[: max(0, cells - len(shown))])
        head = Heading(shown, tuple(range(len(shown))))
        reader = _reader(head)
        return (head, reader) if reader else None
    return None


_TIMES = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d")
_ANY_ROW = "|".join(pattern.pattern.replace("?P<namespace>", "?:") for pattern, _, _ in _ROWS)
FORMAT = TextFormat(
    name="kubectl-get",
    title="a table of kubectl",
    begins=re.compile(rf"^(?:{_HEADING.pattern}|{_ANY_ROW})"),
    read=read,
    provides=SIGNALS,
    repeats=True,
    in_logs=True,
    quotes_logs=True,
)
# Custom columns begin their rows with absolute times, which elsewhere would be lines of a log.
EVENT_COLUMNS = TextFormat(
    name="kubectl-get-events",
    title="a table of Kubernetes events",
    begins=re.compile(rf"^{_EVENT_COLUMNS}$"),
    confirms=_TIMES,
    read=read,
    provides=SIGNALS,
    repeats=True,
    quotes_logs=True,
    keeps=re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?\s{2,}\S"),
)
