"""Writes the HTML report: reads the saved diagnoses and bundles that a page shows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from latdoctor import case_from_bundle
from latdoctor.diagnosis import document
from latdoctor.diagnosis.diagnose import Case
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.incident.timeline_model import DiagnosisEvent, Timeline
from latdoctor.output_file import write_new
from latdoctor.report.html import diagnosis_page, incident_page, render
from latdoctor.report.html.page_inputs import BEFORE, ONLY, Snapshot, chosen, unix
from latdoctor.report.html.page_model import Page

MAX_DOCUMENT = 64 << 20  # bytes of a stored diagnosis


def written(page: Page, path: Path) -> None:
    """Write the page to a new file. Raises OperationError, also where the file exists."""
    try:
        write_new(render.render(without_secrets_in(page)), path)
    except OSError as error:
        raise OperationError(
            f"the report could not be written: {error.strerror}", where=str(path), next_step="name another file"
        ) from error


def of_diagnosis(case: Case, diagnosis: Diagnosis, other: Path | None = None) -> Page:
    """The page of one diagnosis, compared with the bundle `other`. Raises BundleError."""
    this = Snapshot(ONLY, diagnosis, case.evidence, case.context.slo_p99, diagnosis.window.end)
    if other is None:
        return diagnosis_page.of_diagnosis(diagnosis, (this,))
    with opened(other) as bundle:
        evidence, _ = case_from_bundle.seen(bundle)
        before = Snapshot(BEFORE, None, evidence, bundle.context.slo_p99, bundle.window.end)
        return diagnosis_page.of_diagnosis(diagnosis, (before, this))


def of_incident(timeline: Timeline, folder: Path) -> Page:
    """The page of an incident, with the diagnoses and bundles in its state `folder`."""
    return incident_page.of_incident(
        timeline, tuple(_snapshot(name, event, folder) for name, event in chosen(timeline))
    )


def _snapshot(name: str, event: DiagnosisEvent, folder: Path) -> Snapshot:
    """Missing or unreadable files are no error: the page shows the reason."""
    time, whys = unix(event.at), []
    diagnosis = evidence = slo = None
    try:
        path = _kept(event.document, folder)
        if path.stat().st_size > MAX_DOCUMENT:
            raise OperationError(f"is larger than {MAX_DOCUMENT >> 20} MiB", where=event.document)
        diagnosis = document.parse_diagnosis(path.read_bytes())
    except (OSError, ValueError, LatdoctorError, msgspec.MsgspecError) as error:
        whys.append(f"the diagnosis of {event.at} cannot be read again: {_reason(error)}")
    try:
        with opened(_kept(event.bundle, folder)) as bundle:
            evidence, _ = case_from_bundle.seen(bundle)
            slo = bundle.context.slo_p99
    except (OSError, ValueError, LatdoctorError) as error:
        whys.append(f"the evidence of {event.at} cannot be read again: {_reason(error)}")
    return Snapshot(name, diagnosis, evidence, slo, time, "; ".join(whys))


def _kept(name: str, folder: Path) -> Path:
    """A file of the state folder. Raises OperationError for an empty name or one outside the folder."""
    if not name:
        raise OperationError("none was stored")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise OperationError("its name points outside the state folder", where=name)
    return path


def _reason(error: Exception) -> str:
    if isinstance(error, LatdoctorError):
        return f"{error.where}: {error.what}" if error.where else error.what
    return str(getattr(error, "strerror", None) or error)
