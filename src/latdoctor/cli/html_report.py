"""From looks to the HTML report: what of each can still be read, and the file that it becomes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from latdoctor import pipeline
from latdoctor.diagnosis import document
from latdoctor.diagnosis.diagnose import Case
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evidence.bundle_files import opened
from latdoctor.incident.timeline_model import DiagnosisEvent, Timeline
from latdoctor.output_file import write_new
from latdoctor.report.html import build
from latdoctor.report.html import render as html
from latdoctor.report.html.document import Page
from latdoctor.report.html.inputs import BEFORE, ONLY, Seen, chosen, unix

MAX_DOCUMENT = 64 << 20  # bytes of a kept diagnosis


def written(page: Page, path: Path) -> None:
    """A report that is there already stays. Raises OperationError."""
    try:
        write_new(html.render(page), path)
    except OSError as error:
        raise OperationError(
            f"the report could not be written: {error.strerror}", where=str(path), next_step="name another file"
        ) from error


def of_diagnosis(case: Case, diagnosis: Diagnosis, other: Path | None = None) -> Page:
    """The page of one look, beside that in the bundle `other`. Raises BundleError."""
    this = Seen(ONLY, diagnosis, case.evidence, case.context.slo_p99, diagnosis.window.end)
    if other is None:
        return build.of_diagnosis(diagnosis, (this,))
    with opened(other) as bundle:
        evidence, _ = pipeline.seen(bundle)
        before = Seen(BEFORE, None, evidence, bundle.context.slo_p99, bundle.window.end)
        return build.of_diagnosis(diagnosis, (before, this))


def of_incident(timeline: Timeline, folder: Path) -> Page:
    """The page of an incident, with what its state `folder` still holds of its looks."""
    return build.of_incident(timeline, tuple(_seen(name, look, folder) for name, look in chosen(timeline)))


def _seen(name: str, look: DiagnosisEvent, folder: Path) -> Seen:
    """What is missing or unreadable is told on the page; nothing of it is an error."""
    time, whys = unix(look.at), []
    diagnosis = evidence = slo = None
    try:
        path = _kept(look.document, folder)
        if path.stat().st_size > MAX_DOCUMENT:
            raise OperationError(f"is larger than {MAX_DOCUMENT >> 20} MiB", where=look.document)
        diagnosis = document.parse_diagnosis(path.read_bytes())
    except (OSError, ValueError, LatdoctorError, msgspec.MsgspecError) as error:
        whys.append(f"the diagnosis of {look.at} cannot be read again: {_reason(error)}")
    try:
        with opened(_kept(look.bundle, folder)) as bundle:
            evidence, _ = pipeline.seen(bundle)
            slo = bundle.context.slo_p99
    except (OSError, ValueError, LatdoctorError) as error:
        whys.append(f"what was seen at {look.at} cannot be read again: {_reason(error)}")
    return Seen(name, diagnosis, evidence, slo, time, "; ".join(whys))


def _kept(name: str, folder: Path) -> Path:
    """A file of the state folder. Raises OperationError where none was kept, or the name leads out of the folder."""
    if not name:
        raise OperationError("none was kept")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise OperationError("its name leads out of the state folder", where=name)
    return path


def _reason(error: Exception) -> str:
    if isinstance(error, LatdoctorError):
        return f"{error.where}: {error.what}" if error.where else error.what
    return str(getattr(error, "strerror", None) or error)
