"""Stacks of Python threads: `py-spy dump`, once or repeatedly, and the tracebacks of faulthandler.

A thread with the same stack in every dump may be stuck there, or wait for work as it should: which of the two it is the
state (active, idle) and the function tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Subject, Value
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.sanitize import clean

THREADS, ACTIVE, DUMPS, UNCHANGED, STUCK = (
    "stack.threads", "stack.active_threads", "stack.dumps", "stack.unchanged_threads", "stack.unchanged_active_threads",
)  # fmt: skip
GIL, MAIN, FRAMES, FATAL = "stack.gil_holder", "stack.main_thread", "stack.frame_share", "log.fatal_error"
_SIGNALS = frozenset({THREADS, ACTIVE, DUMPS, UNCHANGED, STUCK, GIL, MAIN, FRAMES, FATAL})
_PROCESS = re.compile(r"^Process (\d{1,10}): (.{0,400})$")
_THREAD = re.compile(
    r"^Thread (?P<id>0x[0-9A-Fa-f]+|\d{1,20})(?:/0x[0-9A-Fa-f]+)? \((?P<state>(?:active|idle)(?:\+gil)?)\)"
    r"(?:: \"(?P<name>[^\"]{0,200})\")?\s*$"
)
_FRAME = re.compile(r"^ {2,4}(\S.{0,300}?) \((.{1,300}?)(?::(\d{1,9}))?\)\s*$")
_FAULT_THREAD = re.compile(
    r"^(?:Current thread|Thread) (?P<id>0x[0-9A-Fa-f]+)(?: \[(?P<name>.{0,100})\])? \(most recent call first\):\s*$"
)
_FAULT_FRAME = re.compile(r'^  File "(.{0,400})", line (\d{1,9}|\?\?\?) in (.{1,200})$')
_FATAL = re.compile(r"^Fatal Python error: (.{1,200})$")
_MAX_THREADS = 20_000
_TOP = 3
_LITTLE = 0.05


@dataclass(slots=True)
class _Thread:
    id: str
    name: str
    state: str  # active, idle, with +gil; empty where it is not known
    line: int
    frames: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return self.name or f"thread {self.id}"

    @property
    def top(self) -> str:
        return self.frames[0] if self.frames else "no Python frame"


@dataclass(slots=True)
class _Dump:
    process: str
    threads: list[_Thread] = field(default_factory=list)


class _JsonFrame(msgspec.Struct):
    name: str
    filename: str = ""
    short_filename: str | None = None
    line: int = 0


class _JsonThread(msgspec.Struct):
    pid: int
    thread_id: int
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[_JsonFrame] = []


def read(section: Section) -> Evidence:
    """The threads of each process in the text. Raises ValueError where no thread has a frame."""
    return _evidence(section, *_dumps(section))


def read_json(section: Section) -> Evidence:
    """The threads that `py-spy dump --json` lists. Raises ValueError for anything else."""
    try:
        listed = msgspec.json.decode(section.text.encode(), type=list[_JsonThread])
    except UNDECODABLE as error:
        raise ValueError(f"is no list of threads: {error}") from error
    dumps: dict[str, _Dump] = {}
    for one in listed[:_MAX_THREADS]:
        state = f"{'active' if one.active else 'idle'}{'+gil' if one.owns_gil else ''}"
        thread = _Thread(str(one.thread_id), clean(one.thread_name or "", 100), state, 0)
        for frame in one.frames:
            file = frame.short_filename or frame.filename
            thread.frames.append(_shown(frame.name, file, str(frame.line) if frame.line else None))
        dumps.setdefault(str(one.pid), _Dump(str(one.pid))).threads.append(thread)
    return _evidence(section, list(dumps.values()), [])


def _evidence(section: Section, dumps: Sequence[_Dump], events: Sequence[Event]) -> Evidence:
    known = [dump for dump in dumps if any(thread.frames for thread in dump.threads)]
    if not known and not events:
        raise ValueError("it lists no thread with a frame")
    processes = list(dict.fromkeys(dump.process for dump in known))
    parts = [Evidence((Subject(f"node/{file_name(section)}"),), events=tuple(events))] if events else []
    for process in processes:
        subject = f"process/{file_name(section)}" + (f":{process}" if len(processes) > 1 else "")
        own = [dump for dump in known if dump.process == process]
        parts.append(Evidence((Subject(subject),), tuple(_readings(own, section, subject))))
    return Evidence.merge(parts)


def _dumps(section: Section) -> tuple[list[_Dump], list[Event]]:
    dumps: list[_Dump] = []
    events: list[Event] = []
    thread: _Thread | None = None
    count = 0
    for number, line in enumerate(section.text.splitlines()):
        if found := _PROCESS.match(line):
            dumps.append(_Dump(found[1]))
            thread = None
        elif found := _FATAL.match(line):
            events.append(_event(found[1], section, number))
            dumps.append(_Dump(""))
            thread = None
        elif (found := _THREAD.match(line)) or (found := _FAULT_THREAD.match(line)):
            groups = found.groupdict()
            thread = _Thread(groups["id"], clean(groups.get("name") or "", 100), groups.get("state") or "", number)
            # The same thread again: a further dump without its head.
            if not dumps or any(one.id == thread.id for one in dumps[-1].threads):
                dumps.append(_Dump(dumps[-1].process if dumps else ""))
            count += 1
            if count <= _MAX_THREADS:
                dumps[-1].threads.append(thread)
        elif thread is not None and (found := _FRAME.match(line)):
            thread.frames.append(_shown(found[1], found[2], found[3]))
        elif thread is not None and (found := _FAULT_FRAME.match(line)):
            thread.frames.append(_shown(found[3], found[1].rpartition("/")[2], found[2]))
    return dumps, events


def _shown(function: str, file: str, line: str | None) -> str:
    return clean(f"{function} ({file}:{line})" if line else f"{function} ({file})", 160)


def _event(name: str, section: Section, number: int) -> Event:
    text = clean(without_secrets(name), 200)
    fields: dict[str, Value] = {"name": text}
    return Event(
        FATAL, f"node/{file_name(section)}", section.origin(number), fields, None, f"Fatal Python error: {text}"
    )


def _readings(dumps: Sequence[_Dump], section: Section, subject: str) -> Iterator[Reading]:
    """Of the last dump, and what did not change through all of them."""
    last = dumps[-1].threads
    first_line = section.origin(last[0].line if last else 0)

    def reading(signal: str, value: Value, origin: Origin = first_line, **labels: str) -> Reading:
        return Reading(signal, subject, value, origin, labels=tuple(labels.items()))

    yield reading(DUMPS, float(len(dumps)))
    yield reading(THREADS, float(len(last)))
    stated = [thread for thread in last if thread.state]
    active = [thread for thread in stated if thread.state.startswith("active")]
    if stated:
        yield reading(ACTIVE, float(len(active)))
    for thread in last:
        if thread.state.endswith("+gil"):
            yield reading(GIL, f"{thread.label}: {thread.top}", section.origin(thread.line))
            break
    main = next((thread for thread in last if thread.name == "MainThread"), None)
    if main is not None:
        yield reading(MAIN, f"{main.state or 'state unknown'}: {main.top}", section.origin(main.line))
    frames = Counter(thread.top for thread in (active or last) if thread.frames)
    for frame, count in frames.most_common(_TOP):
        if count >= _LITTLE * sum(frames.values()):
            yield reading(FRAMES, count / sum(frames.values()), first_line, frame=frame)
    if len(dumps) > 1:
        same = [thread for thread in last if _unchanged(thread, dumps)]
        yield reading(UNCHANGED, float(len(same)))
        if stated:
            yield reading(STUCK, float(sum(thread.state.startswith("active") for thread in same)))


def _unchanged(thread: _Thread, dumps: Sequence[_Dump]) -> bool:
    """Whether every dump has the thread with the same stack."""
    stacks = [one.frames for dump in dumps for one in dump.threads if one.id == thread.id]
    return len(stacks) == len(dumps) and all(stack == thread.frames for stack in stacks) and bool(thread.frames)


FORMAT = TextFormat(
    name="python-stacks",
    title="stacks of Python threads",
    begins=re.compile(
        r"^Process \d{1,10}: \S|^Thread (?:0x[0-9A-Fa-f]+|\d+)\S* \((?:active|idle)(?:\+gil)?\)"
        r"|^Fatal Python error: |^(?:Current thread|Thread) 0x[0-9A-Fa-f]+.{0,110}\(most recent call first\):"
    ),
    read=read,
    provides=_SIGNALS,
    confirms=re.compile(
        r"^Thread (?:0x[0-9A-Fa-f]+|\d+)\S* \((?:active|idle)|\(most recent call first\):|^Fatal Python error: ",
        re.MULTILINE,
    ),
    repeats=True,
    in_logs=True,
)

JSON = TextFormat(
    name="py-spy-json",
    title="py-spy dump --json",
    begins=re.compile(r"\A\s*\[\s*\{\s*\"pid\"\s*:\s*\d+,\s*\"thread_id\""),
    read=read_json,
    provides=_SIGNALS,
    whole=True,
)
