"""`docker inspect` (whole, or the state alone) and `docker ps -a`: how a container ended, restarts and limits."""

from __future__ import annotations

import re

from latdoctor.collectors.documents.kubernetes import containers
from latdoctor.collectors.documents.kubernetes.containers import CRASH_LOOP, OOM_KILLED, Ended
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.collectors.documents.kubernetes.quantities import moment
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

_NEVER = "0001-01-01"
_NANO = 1e9
_STATE = re.compile(r'"State":\s*\{')
_PAIR = re.compile(r'"(\w+)":\s*(?:"([^"\n]{0,400})"|(-?\d{1,19}|true|false))')
_ROW = re.compile(r"\s{2,}(?:(Exited|Restarting) \((\d{1,3})\)|(Up)) (.{1,60}?)(?:\s{2,}.*)?\s(\S+)\s*$")
_AGO = re.compile(r"(an?|\d{1,6}) (second|minute|hour|day|week|month|year)s?")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}


def read_inspect(section: Section) -> Evidence:
    """The state of each inspected container. Raises ValueError where none has an exit code."""
    gathered = Gathered(section)
    starts = [found.start() for found in _STATE.finditer(section.text)]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(section.text)
        _container(gathered, section.text[start:end], section.text.count("\n", 0, start))
    found = gathered.evidence()
    if not found.readings:
        raise ValueError("it shows no state of a container")
    return found


def _container(gathered: Gathered, text: str, line: int) -> None:
    known: dict[str, str] = {}
    for key, quoted, bare in _PAIR.findall(text):
        known.setdefault(key, quoted or bare)  # the state comes first, the limits last
    subject = gathered.workload("container", "", known.get("Name", "").strip("/") or "container")
    killed, code = known.get("OOMKilled"), known.get("ExitCode", "")
    ended = known.get("Status") not in ("running", "created", "paused")
    if known.get("Status") == "restarting":
        gathered.reading("container.crash_looping", subject, 1.0, line)
    if killed == "true" or (ended and code.isdigit()):
        reason = OOM_KILLED if killed == "true" else "Error" if code != "0" else "Completed"
        number = float(code) if ended and code.isdigit() else None
        started, finished = _time(known.get("StartedAt", "")), _time(known.get("FinishedAt", ""))
        end = Ended(reason, number, started, finished, known.get("Error", ""))
        containers.put_end(gathered, subject, end, line)
    if known.get("RestartCount", "").isdigit():
        gathered.reading("container.restarts", subject, float(known["RestartCount"]), line)
    for signal, key, factor in (("container.memory.limit", "Memory", 1.0), ("container.cpu.limit", "NanoCpus", _NANO)):
        shown = known.get(key, "")
        if shown.isdigit() and shown != "0":  # 0: no limit
            gathered.reading(signal, subject, float(shown) / factor, line)


def _time(text: str) -> float | None:
    return None if text.startswith(_NEVER) else moment(re.sub(r"(\.\d{6})\d+", r"\1", text))


def read_table(section: Section) -> Evidence:
    """The containers of `docker ps`. Raises ValueError where none is listed."""
    gathered = Gathered(section)
    listed = 0
    for number, line in enumerate(section.text.split("\n")):
        found = _ROW.search(line)
        if not found:
            continue
        listed += 1
        subject = gathered.workload("container", "", found[5])
        if found[1] is None:
            healthy = "(unhealthy)" not in found[4]
            gathered.reading("container.ready", subject, float(healthy), number)
            continue
        if found[1] == "Restarting":
            gathered.reading("container.waiting_reason", subject, CRASH_LOOP, number)
            gathered.reading("container.crash_looping", subject, 1.0, number)
        ago = _AGO.search(found[4])
        amount = (1 if not ago[1].isdigit() else int(ago[1])) * _SECONDS[ago[2]] if ago else None
        finished = gathered.taken_at - amount if amount is not None else None
        reason = "Completed" if found[2] == "0" else "Error"
        containers.put_end(gathered, subject, Ended(reason, float(found[2]), None, finished), number, about=True)
    if not listed:
        raise ValueError("it lists no container")
    return gathered.evidence()


_SIGNALS = frozenset(
    {
        "container.cpu.limit",
        "container.crash_looping",
        "container.exit_code",
        "container.exit_reason",
        "container.memory.limit",
        "container.oom_killed",
        "container.ready",
        "container.restarts",
        "container.waiting_reason",
        "kube.container_ended",
    }
)
INSPECT = TextFormat(
    name="docker-inspect",
    title="docker inspect",
    begins=re.compile(r'^\s{0,12}"State":\s*\{\s*$'),
    confirms=re.compile(r'"OOMKilled":\s*(?:true|false)'),
    read=read_inspect,
    provides=_SIGNALS,
    repeats=True,
    in_logs=True,
)
TABLE = TextFormat(
    name="docker-ps",
    title="docker ps",
    begins=re.compile(r"^CONTAINER ID\s+IMAGE\s+COMMAND\s+CREATED\s+STATUS"),
    read=read_table,
    provides=_SIGNALS,
    repeats=True,
    in_logs=True,
)
