"""Recordings of real servers as fixtures: redacted again, without the names and folders of the recording machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from latdoctor import __version__
from latdoctor.errors import BundleError, OperationError
from latdoctor.evaluation.real.real_store import HEALTHY_BUNDLE, INCIDENT_BUNDLE, RealRecording, write_real_truth
from latdoctor.evaluation.store import anonymized
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor

_ELSEWHERE = "/srv/servers"
MOST_BYTES = 100_000  # of one bundle in the repository


def promote_real(recording: RealRecording, to: Path, root: Path) -> None:
    """Write both bundles and the ground truth into the new folder `to`; `root` is where the servers are installed.

    Raises BundleError, OperationError for a bundle that is too large for a repository.
    """
    try:
        to.mkdir(parents=True)
    except OSError as error:
        raise OperationError(f"cannot create the folder: {error.strerror}", where=str(to)) from error
    names = {str(root): _ELSEWHERE}
    for name in (HEALTHY_BUNDLE, INCIDENT_BUNDLE):
        with opened(recording.folder / name) as whole:
            redactor = Redactor()
            save(redacted(without_folders(anonymized(whole), names), redactor), to / name, __version__, redactor)
        if (size := (to / name).stat().st_size) > MOST_BYTES:
            raise BundleError(f"{name} has {size} bytes (limit {MOST_BYTES})", where=str(to))
    write_real_truth(to, recording.truth)


def without_folders(bundle: Bundle, names: Mapping[str, str]) -> Bundle:
    """`bundle` with folders of this machine replaced in its texts, its sources and its gaps."""
    gaps = tuple(
        structs.replace(gap, source=_replaced(gap.source, names), reason=_replaced(gap.reason, names), origin=None)
        for gap in bundle.gaps
    )
    return replace(bundle, artifacts=tuple(_renamed(one, names) for one in bundle.artifacts), gaps=gaps)


def _renamed(artifact: Artifact, names: Mapping[str, str]) -> Artifact:
    text = artifact.read().decode("utf-8", "surrogateescape")
    content = _replaced(text, names).encode("utf-8", "surrogateescape")
    return replace(artifact, content=content, source=_replaced(artifact.source, names))


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text
