"""Nsight Systems and nvprof: their SQLite databases, the tables that they print, and what these hide.

An export is analysed as a profiler trace is, with the same signals, so that the same findings speak of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from latdoctor.collectors.base import Availability, SourceAvailability
from latdoctor.collectors.input_files import FileFinder, NamedFile, file_reader, safe_name, unique_name
from latdoctor.collectors.nsight import NAME, SIGNALS, nvprof, nvtx, report_tables, sqlite_rows
from latdoctor.collectors.nsight import evidence as nsight_evidence
from latdoctor.collectors.nsight.evidence import Capture
from latdoctor.collectors.torch_trace.events import DamagedEvents
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.gap_code import GapCode, code_of_os_error

if TYPE_CHECKING:
    from latdoctor.collectors.torch_trace.event_store import TraceStore

MAX_DAMAGED = 0.01  # above this share of damaged rows the rest cannot be trusted either
_MAX_FAILURES = 100_000
# Reports begin with one of these, `.qdrep` and `.nsys-rep` alike.
_REPORT = (b"NVIDIA Nsight Systems", b"NVIDIA Tegra Profiler Report")
_LAZY = {"copies": sqlite_rows.COPY, "ranges": nvtx.NVTX}


def _named(finder: FileFinder, given: Sequence[Path]) -> Iterator[NamedFile]:
    """Each export, and each file of tables, is a group of its own."""
    taken: set[str] = set()
    for file in finder.files(given):
        group = unique_name(safe_name(file.path.name.partition(".")[0], "export"), taken)
        taken.add(group)
        yield NamedFile(file.path, group, f"{group}.{'sqlite' if file.head == sqlite_rows.MAGIC else 'csv'}")


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What each export shows. Raises SourceError where one cannot be read as a whole or holds no activity."""
    return Evidence.merge(_parse_one(artifact) for artifact in artifacts)


def _parse_one(artifact: Artifact) -> Evidence:
    head = _head(artifact)
    if head.startswith(sqlite_rows.MAGIC):
        return _export(artifact)
    if any(magic in head[:64] for magic in _REPORT):
        raise SourceError(
            "is a report of Nsight Systems, which only its own tools read",
            where=artifact.source,
            next_step=sqlite_rows.EXPORT_AGAIN,
        )
    return report_tables.parse(artifact)


def _head(artifact: Artifact) -> bytes:
    if isinstance(artifact.content, bytes):
        return artifact.content[:256]
    try:
        with artifact.content.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise SourceError(
            f"cannot be read: {error.strerror}", where=artifact.source, code=code_of_os_error(error)
        ) from error


def _export(artifact: Artifact) -> Evidence:
    # Imported here: the analysis loads numpy only when it runs.
    from latdoctor.collectors.torch_trace.analysis import analyse
    from latdoctor.collectors.torch_trace.event_store import TraceStore

    damage = DamagedEvents()
    subject = f"trace/{artifact.group}"
    with TraceStore(damage) as columns:
        with sqlite_rows.opened(artifact.content, artifact.source) as export:
            older = nvprof.is_one(export)
            if not older:
                _must_be_an_export(export)
            for batch in (nvprof if older else sqlite_rows).batches(export, damage):
                columns.add(batch)
            for name, (start, end) in nvtx.steps(export).items():
                columns.counts.note_step(name, start, end)
            capture = _older_capture(export) if older else _capture(export)
        _must_hold_something(columns, artifact.source)
        seen = nsight_evidence.evidence(analyse(columns), capture, subject, artifact.name)
    return Evidence.merge([seen, Evidence(gaps=tuple(_damage(damage, subject, artifact)))])


def _capture(export: sqlite_rows.SqliteExport) -> Capture:
    return Capture(
        gpus=sqlite_rows.gpu_names(export),
        graphs=sqlite_rows.count(export, sqlite_rows.GRAPH),
        absent=frozenset(what for what, table in _LAZY.items() if table not in export.tables),
        overheads=sqlite_rows.overheads(export),
        failures=sqlite_rows.failures(export, _MAX_FAILURES),
        base=sqlite_rows.began(export),
    )


def _older_capture(export: sqlite_rows.SqliteExport) -> Capture:
    known = nvprof.calls_are_known(export)
    return Capture(failures=nvprof.failures(export, _MAX_FAILURES), calls_have_names=known)


def _must_be_an_export(export: sqlite_rows.SqliteExport) -> None:
    if any(table in export.tables for table in (*sqlite_rows.ACTIVITIES, sqlite_rows.STRINGS)):
        return
    held = f"it has {len(export.tables)} other tables" if export.tables else "it has no tables"
    raise SourceError(
        f"is no Nsight Systems export: {held}",
        where=export.where,
        next_step=nsight_evidence.RECORD,
        code=GapCode.UNSUPPORTED,
    )


def _must_hold_something(columns: TraceStore, where: str) -> None:
    count = columns.damage.count
    if count > MAX_DAMAGED * (columns.counts.timed + count) and (count > 1 or not columns.counts.timed):
        raise SourceError(
            f"{count} rows are damaged; the first: {columns.damage.first}",
            where=where,
            next_step=sqlite_rows.EXPORT_AGAIN,
        )
    if not columns.counts.timed:
        raise SourceError(
            "the export holds no CUDA activity: no call, kernel or copy was recorded",
            where=where,
            next_step=nsight_evidence.RECORD,
            code=GapCode.EMPTY,
        )


def _damage(damage: DamagedEvents, subject: str, artifact: Artifact) -> Sequence[Gap]:
    if not damage.count:
        return ()
    reason = f"{damage.count} rows are damaged and left out; the first: {damage.first}"
    return (
        Gap(NAME, reason, (), subject, "export again if the figures matter", Origin(artifact.name), GapCode.UNREADABLE),
    )


READER = file_reader(
    lambda: FileFinder(
        NAME,
        SIGNALS,
        (".sqlite", ".csv", ".nvvp", ".nvprof"),
        "give what `nsys export --type sqlite` or `nsys stats --format csv` wrote",
    ),
    paths=lambda request: request.nsight,
    named=_named,
    parse=parse,
    availability=SourceAvailability(
        "Nsight Systems exports",
        Availability.IF_GIVEN,
        "GPU busy, launches, allocations, waits, copies and return codes of CUDA calls",
        "nsys profile --trace=cuda,nvtx,osrt COMMAND; nsys export --type sqlite REPORT.nsys-rep; --nsys FILE",
        "--nsys FILE",
    ),
)
