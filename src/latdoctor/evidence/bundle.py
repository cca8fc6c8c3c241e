"""Bundles on disk: a folder with `manifest.json` and `artifacts/`, or the same as a .tar.zst.

Nothing in a bundle is trusted: names that leave the folder, links, too many or too large members are refused, and
every artifact must have the digest that the manifest states.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from latdoctor.errors import SourceError
from latdoctor.evidence.model import Gap, Window
from latdoctor.gap_code import code_of_os_error

if TYPE_CHECKING:
    from latdoctor.evidence.baseline import Baseline


# Nothing that is read whole may be larger than this; a trace has a limit of its own.
MAX_ARTIFACT = 256 << 20


class Redaction(Struct, frozen=True):
    """What was replaced, by kind, and the artifacts that could not be looked into."""

    replaced: dict[str, int] = {}
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Artifact:
    """One raw thing as it was found: a metrics page, a trace, a log.

    `group` binds artifacts that are read together (the first and the last page of one server); `source` says where
    it came from, for people (`http://127.0.0.1:8000/metrics`, `trace.json.gz`); `taken_at` is unix seconds UTC, and
    `modified_at` that of a file's last change.
    """

    name: str
    collector: str
    group: str
    source: str
    taken_at: float
    content: bytes | Path
    modified_at: float | None = None

    @property
    def written_by(self) -> float:
        """When its content was complete, at the latest, in unix seconds UTC: times in it are not after that."""
        return self.taken_at if self.modified_at is None else min(self.taken_at, self.modified_at)

    def read(self, limit: int = MAX_ARTIFACT) -> bytes:
        """The raw bytes. Raises SourceError where the file cannot be read or is larger than `limit` bytes."""
        if isinstance(self.content, bytes):
            return self.content
        try:
            size = self.content.stat().st_size
            if size > limit:
                raise SourceError(
                    f"{size >> 20} MiB is more than the {limit >> 20} MiB that is read at most",
                    where=self.source,
                    next_step="give the part of it that covers the incident",
                )
            return self.content.read_bytes()
        except OSError as error:
            raise SourceError(
                f"cannot be read: {error.strerror}", where=self.source, code=code_of_os_error(error)
            ) from error


NO_GPU = "none"


@dataclass(frozen=True, slots=True)
class Context:
    """What the user specified about the target, stored in the bundle so that a replay gives the same diagnosis."""

    target: str
    slo_p99: float | None = None  # seconds
    slo_error_ratio: float | None = None  # 0..1
    gpu: str = ""  # NO_GPU where the target is configured to have none


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything one look brought back; `gaps` are what it could not bring."""

    context: Context
    window: Window
    artifacts: tuple[Artifact, ...] = ()
    gaps: tuple[Gap, ...] = ()
    baseline: Baseline | None = None
    redaction: Redaction | None = None  # None: nothing was redacted
