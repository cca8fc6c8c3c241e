"""Nsight Systems: SQLite exports of a report, the tables that `nsys stats` and nvprof print, and what they hide.

An export is analysed as a profiler trace is, with the same signals, so that the same findings speak of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latdoctor.collect.files import Finder, safe_name, unique
from latdoctor.collect.nsight import database, printed, rows
from latdoctor.collect.nsight import evidence as nsight_evidence
from latdoctor.collect.nsight.evidence import Capture
from latdoctor.collect.source import Clock, Collected, Collector, Request, Sight
from latdoctor.collect.torch_trace.events import Damage
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin
from latdoctor.text import clean

if TYPE_CHECKING:
    from latdoctor.collect.torch_trace.columns import Columns

NAME = nsight_evidence.NAME
MAX_DAMAGED = 0.01  # above this share of damaged rows the rest cannot be trusted either
_MAX_FAILURES = 100_000
_REPORT = b"NVIDIA Nsight Systems"
_ENDINGS = (".sqlite", ".csv")
_NVPROF = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable")


def collect(request: Request, clock: Clock) -> Collected:
    """Finds the exports and tables of `request.nsight`, files or folders of them; what is none is a gap."""
    finder = Finder(
        NAME,
        nsight_evidence.SIGNALS,
        lambda path: path.name.endswith(_ENDINGS),
        "give what `nsys export --type sqlite` or `nsys stats --format csv` wrote",
    )
    artifacts: list[Artifact] = []
    for path in finder.files(request.nsight):
        stem = safe_name(path.name.partition(".")[0], "export")
        group = unique(stem, [artifact.group for artifact in artifacts])
        with path.open("rb") as file:
            ending = "sqlite" if file.read(len(database.MAGIC)) == database.MAGIC else "csv"
        name = f"{NAME}/{group}.{ending}"
        artifacts.append(Artifact(name, NAME, group, clean(str(path)), clock.now(), path))
    return Collected(tuple(artifacts), tuple(finder.gaps))


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What each export shows. Raises SourceError where one cannot be read as a whole or holds no activity."""
    return Evidence.merge(_parse_one(artifact) for artifact in artifacts)


def preflight() -> Sequence[Sight]:
    return (
        Sight(
            "Nsight Systems exports",
            "if given",
            "GPU busy, launches, allocations, waits, copies and return codes of CUDA calls",
            "nsys profile --trace=cuda,nvtx,osrt COMMAND; nsys export --type sqlite REPORT.nsys-rep; --nsys FILE",
        ),
    )


def _parse_one(artifact: Artifact) -> Evidence:
    head = _head(artifact)
    if head.startswith(database.MAGIC):
        return _export(artifact)
    if _REPORT in head[:64]:
        raise SourceError(
            "is a report of Nsight Systems, which only its own tools read",
            where=artifact.source,
            next_step=database.EXPORT_AGAIN,
        )
    return printed.parse(artifact)


def _head(artifact: Artifact) -> bytes:
    if isinstance(artifact.content, bytes):
        return artifact.content[:256]
    try:
        with artifact.content.open("rb") as file:
            return file.read(256)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=artifact.source) from error


def _export(artifact: Artifact) -> Evidence:
    # Imported here: the analysis loads numpy only when it runs.
    from latdoctor.collect.torch_trace.analysis import analyse
    from latdoctor.collect.torch_trace.columns import Columns

    damage = Damage()
    subject = f"trace/{artifact.group}"
    with Columns(damage) as columns:
        with database.opened(artifact.content, artifact.source) as export:
            _must_be_an_export(export)
            for batch in rows.batches(export, damage):
                columns.add(batch)
            capture = _capture(export)
        _must_hold_something(columns, artifact.source)
        seen = nsight_evidence.evidence(analyse(columns), capture, subject, artifact.name)
    return Evidence.merge([seen, Evidence(gaps=tuple(_damage(damage, subject, artifact)))])


def _capture(export: database.Export) -> Capture:
    return Capture(
        gpus=rows.gpu_names(export),
        graphs=rows.count(export, rows.GRAPH),
        absent=frozenset() if rows.COPY in export.tables else frozenset({"copies"}),
        overheads=rows.overheads(export),
        failures=rows.failures(export, _MAX_FAILURES),
        base=rows.began(export),
    )


def _must_be_an_export(export: database.Export) -> None:
    if any(table in export.tables for table in _NVPROF):
        raise SourceError(
            "is a database of nvprof, whose calls have numbers in place of names",
            where=export.where,
            next_step="print it as a table: nvprof --csv --print-gpu-summary --print-api-summary -i FILE",
        )
    if any(table in export.tables for table in (*rows.ACTIVITIES, rows.STRINGS)):
        return
    held = f"it has {len(export.tables)} other tables" if export.tables else "it has no tables"
    raise SourceError(f"is no Nsight Systems export: {held}", where=export.where, next_step=nsight_evidence.RECORD)


def _must_hold_something(columns: Columns, where: str) -> None:
    count = columns.damage.count
    if count > MAX_DAMAGED * (columns.counts.timed + count) and (count > 1 or not columns.counts.timed):
        raise SourceError(
            f"{count} rows are damaged; the first: {columns.damage.first}",
            where=where,
            next_step=database.EXPORT_AGAIN,
        )
    if not columns.counts.timed:
        raise SourceError(
            "the export holds no CUDA activity: no call, kernel or copy was recorded",
            where=where,
            next_step=nsight_evidence.RECORD,
        )


def _damage(damage: Damage, subject: str, artifact: Artifact) -> Sequence[Gap]:
    if not damage.count:
        return ()
    reason = f"{subject}: {damage.count} rows are damaged and left out; the first: {damage.first}"
    return (Gap(NAME, reason, (), subject, "export again if the figures matter", Origin(artifact.name)),)


COLLECTOR = Collector(
    name=NAME,
    title="Nsight Systems",
    provides=frozenset(nsight_evidence.SIGNALS),
    asked=lambda request: bool(request.nsight),
    collect=collect,
    parse=parse,
    preflight=preflight,
    ask="--nsys FILE",
    cost="reads a file",
)
