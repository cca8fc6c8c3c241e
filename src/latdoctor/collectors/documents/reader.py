"""Read a text file of command output and exports: split it, read each part, join what the parts show."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.cut_json import complete_entries, complete_lines, is_cut
from latdoctor.collectors.documents.formats import FORMATS, WHOLE
from latdoctor.collectors.documents.markdown_prose import is_markdown, without_prose
from latdoctor.collectors.documents.prompts import machine_of
from latdoctor.collectors.documents.splitting import Part, cleaned_lines, split, unwrapped
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.collectors.documents.unrecognised import appearance, is_configuration, is_source_code
from latdoctor.collectors.file_kinds import head_of
from latdoctor.collectors.input_files import FileFinder, NamedFile, file_reader, safe_name, unique_name
from latdoctor.collectors.logs.collector import parse as parse_log
from latdoctor.collectors.logs.formats import decoded
from latdoctor.collectors.logs.line_kinds import CANDIDATE
from latdoctor.collectors.machine_identity import of_machine
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode

MAX_READ = 64 << 20  # bytes of one file
_HEAD = 128 << 10
_WRAPPING = 400  # characters in which a prompt or a fence may be before a document
_PLACE = re.compile(r"line (\d+)")
_GZIP = b"\x1f\x8b"
_AGAIN = "take it again and write it to a file (COMMAND > FILE), to its end"


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the files show. Raises SourceError for one in which nothing is recognised."""
    if len(artifacts) > 1:
        return _together(artifacts)
    return Evidence.merge(_file(artifact) for artifact in artifacts)


def _together(artifacts: Sequence[Artifact]) -> Evidence:
    """What files of one format show that are read together; file by file where that fails."""
    texts = [unwrapped(_text(artifact)) for artifact in artifacts]
    form = next((one for one in WHOLE if one.begins.search(texts[0], 0, _HEAD)), None)
    if form is not None and form.read_together is not None:
        sections = [
            Section(text, 1, artifact.name, artifact.source, artifact.written_by)
            for text, artifact in zip(texts, artifacts, strict=True)
        ]
        with contextlib.suppress(ValueError):  # each file is then read, or reported, by itself
            return form.read_together(sections)
    return Evidence.merge(_file(artifact) for artifact in artifacts)


def _file(artifact: Artifact) -> Evidence:
    text = _text(artifact)
    document = unwrapped(text)
    whole = next((one for one in WHOLE if one.begins.search(document, 0, _HEAD)), None)
    lines = cleaned_lines(text[:_WRAPPING] if whole else text)
    parts = [Part(whole, (document,), 1, lines[0])] if whole else list(split(lines, FORMATS))
    parts[-1] = replace(parts[-1], is_cut=not text.endswith("\n"))
    only_prose = all(part.format is None for part in parts)
    if is_markdown(lines):
        parts = [part if part.format else replace(part, lines=tuple(without_prose(part.lines))) for part in parts]
    no_output = only_prose and (is_source_code(document) or is_configuration(document))
    found = [] if no_output else list(_shown(parts, artifact, lines))
    if not found:
        seen = appearance(head_of(artifact.content), decoded)
        raise SourceError(seen.what, where=artifact.source, next_step=seen.next_step)
    return _with_joined_gaps(Evidence.merge(found))


def _shown(parts: Sequence[Part], artifact: Artifact, lines: Sequence[str]) -> Iterator[Evidence]:
    """What each part shows, and of which machine where the prompt before it names one."""
    shown = [
        (found, machine_of(found, _before(part, lines), artifact.name))
        for part, further in _read(parts)
        for found in _part(part, artifact, further=further)
    ]
    several = len({machine.name for _, machine in shown if machine}) > 1
    for found, machine in shown:
        named = structs.replace(found, machines=(machine,)) if machine else found
        yield of_machine(named, machine.name) if machine and several else named


def _before(part: Part, lines: Sequence[str]) -> Sequence[str]:
    """The lines before a part; before a document, which is numbered without its wrapping, what may be that."""
    whole = part.format is not None and part.format.whole
    return lines if whole else lines[: part.first_line - 1]


def _with_joined_gaps(found: Evidence) -> Evidence:
    """One gap for each reason and subject; what one part lacks and another part has is not missing."""
    known: set[tuple[str | None, str]] = {(one.subject, one.signal) for one in found.readings}
    known.update((None, one.signal) for one in found.readings)
    signals: dict[Gap, dict[str, None]] = {}
    for gap in found.gaps:
        same = structs.replace(gap, signals=(), origin=_of_file(gap))
        general = gap.code not in (GapCode.ABSENT, GapCode.UNREADABLE)
        lacking = (one for one in gap.signals if general or (gap.subject, one) not in known)
        signals.setdefault(same, {}).update(dict.fromkeys(lacking))
    empty = {gap for gap in found.gaps if not gap.signals}
    gaps = (structs.replace(gap, signals=tuple(names)) for gap, names in signals.items() if names or gap in empty)
    return structs.replace(found, gaps=tuple(gaps))


def _text(artifact: Artifact) -> str:
    return decoded(_content(artifact)).decode("utf-8", "replace")


def _content(artifact: Artifact) -> bytes:
    """The bytes of the file, unpacked. Raises SourceError where they are more than MAX_READ, or damaged."""
    raw = artifact.read(MAX_READ)
    if not raw.startswith(_GZIP):
        return raw
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(raw, MAX_READ + 1)
    except zlib.error as error:
        raise SourceError(f"is damaged: {error}", where=artifact.source, code=GapCode.UNREADABLE) from error
    if len(unpacked) > MAX_READ:
        step = "give the part of it that covers the incident"
        raise SourceError(f"is more than {MAX_READ >> 20} MiB when unpacked", where=artifact.source, next_step=step)
    return unpacked


def _read(parts: Sequence[Part]) -> Iterator[tuple[Part, bool]]:
    """The parts to read, and whether an earlier one has the same format."""
    last = {part.format.name: part for part in parts if part.format}
    seen: set[str] = set()
    for part in parts:
        if part.format is None:
            yield part, False
        elif not part.format.cumulative or part is last[part.format.name]:
            yield part, part.format.name in seen
            seen.add(part.format.name)


def _of_file(gap: Gap) -> Origin | None:
    """What is missing in all parts has no place in one of them."""
    return Origin(gap.origin.artifact) if gap.origin and gap.code == GapCode.ABSENT else gap.origin


def _part(part: Part, artifact: Artifact, *, further: bool) -> Iterator[Evidence]:
    """What one part shows; one that is damaged is a gap, prose shows nothing."""
    if part.format is None:
        yield from _log(part, artifact)
        return
    if part.format.quotes_logs:
        yield from (Evidence(subjects=one.subjects, events=one.events) for one in _log(part, artifact))
    content = _content(artifact) if part.format.binary else b""
    name, source, written_by = artifact.name, artifact.source, artifact.written_by
    section = Section(part.text, part.first_line, name, source, written_by, further, part.command, content)
    try:
        found = part.format.read(section)
    except ValueError as error:
        found = _in_part(part.format, section, error)
    else:
        if part.format.entries and section.text.rstrip()[-1:] not in "]}" and is_cut(section.text):
            reason = f"{section.source}: {part.format.title} is cut in the middle: what is complete was read"
            found = structs.replace(found, gaps=(*found.gaps, _damage(reason, section, (), _AGAIN)))
    yield found


def _in_part(form: TextFormat, section: Section, error: ValueError) -> Evidence:
    """What the complete entries of a part show that is cut in the middle; a gap where there is none."""
    readable = (form.whole or form.entries > 0) and not form.binary
    cuts = (complete_entries(section.text, form.entries), complete_lines(section.text)) if readable else ()
    for cut in filter(None, cuts):
        with contextlib.suppress(ValueError):
            found = form.read(replace(section, text=cut.text))
            reason = f"{section.source}: {form.title} is cut in the middle: {cut.entries} entries read"
            return structs.replace(found, gaps=(*found.gaps, _damage(reason, section, (), _AGAIN)))
    if readable and is_cut(section.text):
        what = f"is {form.title}, cut in the middle before its first complete entry"
        raise SourceError(what, where=section.source, next_step=_AGAIN, code=GapCode.UNREADABLE)
    reason = f"{section.source}: {form.title} from line {section.first_line} could not be read: {error}"
    return Evidence(gaps=(_damage(reason, section, tuple(sorted(form.provides))),))


def _damage(reason: str, section: Section, signals: tuple[str, ...], step: str = "") -> Gap:
    return Gap(NAME, reason, signals, None, step, section.origin(), GapCode.UNREADABLE)


def read_lines(
    lines: Sequence[str], first_line: int, section: Section, formats: Sequence[TextFormat] = FORMATS
) -> Evidence:
    """What lines of a larger text show, as if they were a file; `first_line` counts from 1."""
    artifact = _artifact_of(section)
    parts = [_placed(part, first_line) for part in split(lines, formats)]
    return Evidence.merge(
        evidence for part, further in _read(parts) for evidence in _part(part, artifact, further=further)
    )


def _placed(part: Part, first_line: int) -> Part:
    """`part` with its place in the larger text."""
    return replace(part, first_line=part.first_line + first_line - 1)


def read_kernel_log(lines: Sequence[str], first_line: int, section: Section) -> Evidence:
    """The events of a whole kernel log within a larger text, for which it counts as searched."""
    if not any(line.strip() for line in lines):
        return Evidence()
    return _parsed_log(Part(None, tuple(lines), first_line), _artifact_of(section))


def _artifact_of(section: Section) -> Artifact:
    group = section.artifact.rpartition("/")[2]
    return Artifact(section.artifact, NAME, group, section.source, section.taken_at, b"")


def _log(part: Part, artifact: Artifact) -> Iterator[Evidence]:
    """The events of log lines between other parts. Such an extract never counts as searched."""
    if not CANDIDATE.search(part.text.encode()):
        return
    try:
        found = _parsed_log(part, artifact)
    except SourceError as error:
        if error.code != GapCode.EMPTY:  # typed commands are no lines of a log
            raise
        return
    if found.events or found.readings or found.series:
        yield structs.replace(found, looked=(), gaps=(), clipped=())


def _parsed_log(part: Part, artifact: Artifact) -> Evidence:
    """What the lines show as a log, with their places in the whole text."""
    content = part.text.encode() + (b"" if part.is_cut else b"\n")
    log = Artifact(artifact.name, "logs", artifact.group, artifact.source, artifact.written_by, content)
    found = parse_log([log])
    return structs.replace(
        found,
        events=tuple(structs.replace(one, origin=_moved(one.origin, part.first_line)) for one in found.events),
        readings=tuple(structs.replace(one, origin=_moved(one.origin, part.first_line)) for one in found.readings),
        machines=tuple(structs.replace(one, origin=_moved(one.origin, part.first_line)) for one in found.machines),
    )


def _moved(origin: Origin, first_line: int) -> Origin:
    within = _PLACE.fullmatch(origin.place)
    return Origin(origin.artifact, f"line {int(within[1]) + first_line - 1}") if within else origin


def _named(finder: FileFinder, paths: tuple[Path, ...]) -> Iterator[NamedFile]:
    taken: list[str] = []
    for file in finder.files(paths):
        name = unique_name(safe_name(file.path.name, "document"), taken)
        taken.append(name)
        yield NamedFile(file.path, _group(file.path) or name, name)


def _group(path: Path) -> str:
    """The name of the format of a file that is read together with others of its format; else empty."""
    text = decoded(head_of(path)).decode("utf-8", "replace")
    form = next((one for one in WHOLE if one.begins.search(text)), None)
    return form.name if form is not None and form.read_together is not None else ""


READER = file_reader(
    lambda: FileFinder(NAME, (), ("",), "name the files one by one"),
    paths=lambda request: request.documents,
    named=_named,
    parse=parse,
    availability=SourceAvailability(
        "output of commands and load tests",
        Availability.IF_GIVEN,
        "nvidia-smi, kubectl, load test results and exports of other tools, as text",
        "nvidia-smi -q > gpu.txt, then latdoctor diagnose gpu.txt",
    ),
)
