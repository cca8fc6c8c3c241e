"""Stores the bundle and document of each diagnosis during an incident, and builds its journal record.

Files are written before the entry, so that an entry never names a missing file. A killed diagnosis leaves files that
no entry names; the next one uses the next number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from latdoctor import __version__
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.codes import CheckStatus, FindingKind
from latdoctor.diagnosis.document import parse_diagnosis
from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.errors import LatdoctorError, OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.redaction import bundle as redacting
from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.incident import events
from latdoctor.incident.lookup import folder_of
from latdoctor.journal.state_dir import ensure_private, fsync_directory
from latdoctor.sanitize import clean

MAX_BYTES = 64 << 20  # of a diagnosis that is read again
SLACK = 60.0  # seconds by which readings may reach back before the start of a diagnosis
_CAUSES, _BECAUSE, _UNSEEN = 8, 6, 12  # recorded items at most
_LONGEST = 400  # characters of a text
_CHANGES = 10
_PAGES, _SERVERS = "prometheus", 4  # collector of metrics pages; recorded pages at most


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """Journal record of a diagnosis, and storage errors."""

    diagnosed: events.DiagnosisRecord
    troubles: tuple[str, ...] = ()


def store_evidence(place: Path, incident: str, bundle: Bundle, diagnosis: Diagnosis) -> StoredEvidence:
    """Store bundle and document in the state folder `place`, redacted. Storage errors are reported, never raised.

    Raises UsageError for an unusable state folder.
    """
    folder = folder_of(place, incident) / "looks"
    troubles: list[str] = []
    document = saved = ""
    ensure_private(folder)
    try:
        path = _written(folder, msgspec.json.format(msgspec.json.encode(diagnosis), indent=2))
        document = str(path.relative_to(place))
        archive = path.with_name(f"{path.stem}.tar.zst")
        _save(bundle, archive)
        saved = str(archive.relative_to(place))
    except OSError as error:
        troubles.append(f"the diagnosis could not be stored: {error.strerror}")
    except LatdoctorError as error:
        troubles.append(f"the evidence could not be stored: {error.what}")
    return StoredEvidence(diagnosis_record(diagnosis, document, saved, _servers(bundle)), tuple(troubles))


def diagnosis_record(
    diagnosis: Diagnosis, document: str = "", bundle: str = "", servers: tuple[str, ...] = ()
) -> events.DiagnosisRecord:
    """Journal record of a diagnosis; `document` and `bundle`: stored files, `servers`: metrics pages read."""
    seen_from, seen_until = _observed_window(diagnosis)
    message = {check.id: check.message for check in diagnosis.checks}
    record = events.DiagnosisRecord(
        run_id=diagnosis.run_id,
        target=clean(diagnosis.target, 200),
        level=diagnosis.verdict.level,
        message=clean(diagnosis.verdict.message, _LONGEST),
        answer=diagnosis.answer.kind,
        causes=tuple(_named(cause, message) for cause in _recorded_causes(diagnosis)),
        unseen=tuple(_not_observed(diagnosis))[:_UNSEEN],
        seen_from=seen_from,
        seen_until=seen_until,
        since=diagnosis.since.time if diagnosis.since else None,
        document=document,
        bundle=bundle,
        fired=tuple(
            check.id
            for check in diagnosis.checks
            if check.status == CheckStatus.FIRED and check.kind == FindingKind.SPECIFIC
        ),
        servers=servers,
        changes=tuple(
            events.ChangeRecord(one.time, one.kind, clean(one.message, _LONGEST))
            for one in diagnosis.changes[:_CHANGES]
        ),
    )
    return without_secrets_in(record)


def _servers(bundle: Bundle) -> tuple[str, ...]:
    """The metrics pages of it; none of a redacted bundle, in which addresses are pseudonyms."""
    if bundle.redaction is not None:
        return ()
    pages = (one.source for one in bundle.artifacts if one.collector == _PAGES and "://" in one.source)
    return tuple(clean(page, 200) for page in dict.fromkeys(pages))[:_SERVERS]


def load_diagnosis(place: Path, diagnosed: events.DiagnosisRecord) -> Diagnosis | None:
    """The full diagnosis, if its document is still stored."""
    if not diagnosed.document:
        return None
    try:
        with (place / diagnosed.document).open("rb") as file:
            return parse_diagnosis(file.read(MAX_BYTES))
    except (OSError, *UNDECODABLE):
        return None


def _recorded_causes(diagnosis: Diagnosis) -> Iterable[RankedCause]:
    """Every named cause and the first candidates."""
    named = [cause for cause in diagnosis.causes if cause.named]
    others = [cause for cause in diagnosis.causes if not cause.named]
    return (named + others)[: max(_CAUSES, len(named))]


def _named(cause: RankedCause, message: dict[str, str]) -> events.CauseRecord:
    return events.CauseRecord(
        id=cause.id,
        title=clean(cause.title, 200),
        tier=cause.tier,
        probability=cause.probability,
        named=cause.named,
        subjects=tuple(clean(subject, 100) for subject in cause.subjects[:_CAUSES]),
        because=tuple(_messages(cause.evidence_for, message)),
        against=tuple(_messages(cause.evidence_against, message)),
        playbooks=cause.playbooks,
    )


def _messages(checks: Iterable[str], message: dict[str, str]) -> Iterator[str]:
    for name in list(checks)[:_BECAUSE]:
        yield clean(message.get(name, name), _LONGEST)


def _not_observed(diagnosis: Diagnosis) -> Iterator[str]:
    """Unevaluated checks of each tier, then the gaps that hide most signals."""
    for tier in diagnosis.tiers:
        if tier.not_evaluated:
            hidden = {"unseen": ", so that nothing of it is known", "partly": ", essentials among them"}.get(
                tier.seen, ""
            )
            yield f"{tier.name}: {len(tier.not_evaluated)} checks could not be evaluated{hidden}"
    gaps = sorted(diagnosis.gaps, key=lambda gap: -len(gap.signals))
    yield from dict.fromkeys(f"{gap.source}: {clean(gap.message, _LONGEST)}" for gap in gaps)


def _observed_window(diagnosis: Diagnosis) -> tuple[float | None, float | None]:
    """Time range of the evidence, unix seconds; falls back to the time of the diagnosis."""
    window, recorded = diagnosis.window, diagnosis.evidence_window
    start = window.start if recorded.start is None else recorded.start
    if window.start is not None and recorded.start is not None and recorded.start >= window.start - SLACK:
        start = window.start
    return start, window.end if recorded.end is None else recorded.end


def _written(folder: Path, content: bytes) -> Path:
    """Write the next free number, completely, before an entry names it. Raises OSError."""
    taken = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()]
    number = max(taken, default=0) + 1
    while True:
        path = folder / f"{number}.json"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:  # a concurrent diagnosis
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fsync_directory(folder)
        return path


def _save(bundle: Bundle, path: Path) -> None:
    """Save redacted; a redacted bundle is saved as it is. Raises BundleError, OperationError."""
    if bundle.redaction is not None:
        save(bundle, path, __version__)
        return
    redactor = Redactor()
    try:
        save(redacting.redacted(bundle, redactor), path, __version__, redactor)
    except OSError as error:
        raise OperationError(f"{error.strerror or error}", where=str(path)) from error
