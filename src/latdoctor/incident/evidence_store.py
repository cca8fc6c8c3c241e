"""A look during an incident: its bundle and its diagnosis are kept, and what it said is journaled in short.

The files come first, so that an entry never names what is not there. A look that was killed on its way leaves files
that no entry names; the next one takes the next number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from latdoctor import __version__
from latdoctor.diagnosis.result import Diagnosis, RankedCause
from latdoctor.errors import UNDECODABLE, LatdoctorError, OperationError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.redaction import bundle as redacting
from latdoctor.evidence.redaction.redactor import Redactor
from latdoctor.incident import events
from latdoctor.incident.lookup import folder_of
from latdoctor.journal.state_dir import ensure_private, fsync_directory
from latdoctor.sanitize import clean

MAX_BYTES = 64 << 20  # of a diagnosis that is read again
SLACK = 60.0  # seconds by which a look's own readings may reach back behind its beginning
_CAUSES, _BECAUSE, _UNSEEN = 8, 6, 12  # told of each at most
_LONGEST = 400  # characters of a text
_PAGES, _SERVERS = "prometheus", 4  # the collector that reads metrics pages, and how many of them are told


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """What to journal of a look, and why a part of it could not be kept."""

    diagnosed: events.DiagnosisRecord
    troubles: tuple[str, ...] = ()


def store_evidence(place: Path, incident: str, bundle: Bundle, diagnosis: Diagnosis) -> StoredEvidence:
    """Keeps both in the state folder `place`, redacted. What cannot be kept is told, and never stops a diagnosis.

    Raises UsageError for a state folder that cannot be used.
    """
    looks = folder_of(place, incident) / "looks"
    troubles: list[str] = []
    document = saved = ""
    ensure_private(looks)
    try:
        path = _written(looks, msgspec.json.format(msgspec.json.encode(diagnosis), indent=2))
        document = str(path.relative_to(place))
        archive = path.with_name(f"{path.stem}.tar.zst")
        _save(bundle, archive)
        saved = str(archive.relative_to(place))
    except OSError as error:
        troubles.append(f"the diagnosis could not be kept: {error.strerror}")
    except LatdoctorError as error:
        troubles.append(f"what was seen could not be kept: {error.what}")
    return StoredEvidence(diagnosis_record(diagnosis, document, saved, _servers(bundle)), tuple(troubles))


def diagnosis_record(
    diagnosis: Diagnosis, document: str = "", bundle: str = "", servers: tuple[str, ...] = ()
) -> events.DiagnosisRecord:
    """A diagnosis as it is journaled; `document` and `bundle` are where it was kept, `servers` what was read."""
    seen_from, seen_until = _seen(diagnosis)
    message = {check.id: check.message for check in diagnosis.checks}
    return events.DiagnosisRecord(
        run_id=diagnosis.run_id,
        target=clean(diagnosis.target, 200),
        level=diagnosis.verdict.level,
        message=clean(diagnosis.verdict.message, _LONGEST),
        answer=diagnosis.answer.kind,
        causes=tuple(_named(cause, message) for cause in _told(diagnosis)),
        unseen=tuple(_unseen(diagnosis))[:_UNSEEN],
        seen_from=seen_from,
        seen_until=seen_until,
        since=diagnosis.since.time if diagnosis.since else None,
        document=document,
        bundle=bundle,
        fired=tuple(check.id for check in diagnosis.checks if check.status == "fired" and check.kind == "specific"),
        servers=servers,
    )


def _servers(bundle: Bundle) -> tuple[str, ...]:
    """The metrics pages of it; none of a redacted bundle, in which addresses are pseudonyms."""
    if bundle.redaction is not None:
        return ()
    pages = (one.source for one in bundle.artifacts if one.collector == _PAGES and "://" in one.source)
    return tuple(clean(page, 200) for page in dict.fromkeys(pages))[:_SERVERS]


def load_diagnosis(place: Path, diagnosed: events.DiagnosisRecord) -> Diagnosis | None:
    """The whole diagnosis, if it was kept and is there still."""
    if not diagnosed.document:
        return None
    try:
        with (place / diagnosed.document).open("rb") as file:
            return msgspec.json.decode(file.read(MAX_BYTES), type=Diagnosis)
    except (OSError, *UNDECODABLE):
        return None


def _told(diagnosis: Diagnosis) -> Iterable[RankedCause]:
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
        because=tuple(_says(cause.evidence_for, message)),
        against=tuple(_says(cause.evidence_against, message)),
        playbooks=cause.playbooks,
    )


def _says(checks: Iterable[str], message: dict[str, str]) -> Iterator[str]:
    for name in list(checks)[:_BECAUSE]:
        yield clean(message.get(name, name), _LONGEST)


def _unseen(diagnosis: Diagnosis) -> Iterator[str]:
    """Of each tier what was not, and what hides most."""
    for tier in diagnosis.tiers:
        if tier.not_evaluated:
            seen = {"unseen": ", so that nothing of it is known", "partly": ", essentials among them"}.get(
                tier.seen, ""
            )
            yield f"{tier.name}: {len(tier.not_evaluated)} checks could not be evaluated{seen}"
    gaps = sorted(diagnosis.gaps, key=lambda gap: -len(gap.signals))
    yield from dict.fromkeys(f"{gap.source}: {clean(gap.reason, _LONGEST)}" for gap in gaps)


def _seen(diagnosis: Diagnosis) -> tuple[float | None, float | None]:
    """From when to when what was looked at speaks, unix seconds; where it does not tell, when it was looked."""
    looked, told = diagnosis.window, diagnosis.evidence_window
    start = looked.start if told.start is None else told.start
    if looked.start is not None and told.start is not None and told.start >= looked.start - SLACK:
        start = looked.start
    return start, looked.end if told.end is None else told.end


def _written(looks: Path, content: bytes) -> Path:
    """The next number, which nobody else has; whole before an entry names it. Raises OSError."""
    taken = [int(path.stem) for path in looks.glob("*.json") if path.stem.isdecimal()]
    number = max(taken, default=0) + 1
    while True:
        path = looks / f"{number}.json"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:  # another look at the same moment
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fsync_directory(looks)
        return path


def _save(bundle: Bundle, path: Path) -> None:
    """Redacted, unless it was when it came. Raises BundleError, OperationError."""
    if bundle.redaction is not None:
        save(bundle, path, __version__)
        return
    redactor = Redactor()
    try:
        save(redacting.redacted(bundle, redactor), path, __version__, redactor)
    except OSError as error:
        raise OperationError(f"{error.strerror or error}", where=str(path)) from error
