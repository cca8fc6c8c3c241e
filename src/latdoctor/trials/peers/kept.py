"""Scores of peers that need an environment of their own: kept beside the recordings, they enter the same contest.

`peers/NAME.json` in a folder of recordings holds what NAME made of each run; a run that is not there it failed at.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.decoding import UNDECODABLE
from latdoctor.errors import BundleError
from latdoctor.trials.contest import Contestant
from latdoctor.trials.peers.contestants import from_source
from latdoctor.trials.peers.running import Scored
from latdoctor.trials.record import Recorded

FOLDER = "peers"
MAX_BYTES = 256 << 20


class Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """What one peer made of each run."""

    peer: str
    runs: dict[str, Scored]


def keep(folder: Path, kept: Kept) -> Path:
    """Writes it beside the recordings in `folder`. Raises BundleError."""
    path = folder / FOLDER / f"{kept.peer}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".json.new")
        made.write_bytes(msgspec.json.encode(kept, order="sorted"))
        made.replace(path)
    except OSError as error:
        raise BundleError(f"the scores cannot be written: {error.strerror}", where=str(path)) from error
    return path


def contestants(folder: Path) -> tuple[Contestant, ...]:
    """Who has kept scores beside the recordings in `folder`, in the order of names. Raises BundleError."""
    return tuple(_contestant(path) for path in sorted((folder / FOLDER).glob("*.json")))


def _contestant(path: Path) -> Contestant:
    kept = _read(path)

    def source(recorded: Recorded) -> Scored:
        run = recorded.truth.run
        return kept.runs.get(run) or Scored(kept.peer, failed=f"{kept.peer} has not scored {run}")

    return from_source(kept.peer, source)


def _read(path: Path) -> Kept:
    again = "run that peer again, or take the file away"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BundleError(f"larger than {MAX_BYTES >> 20} MiB", where=str(path), next_step=again)
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UNDECODABLE as error:
        raise BundleError(f"these are no scores of a peer: {error}", where=str(path), next_step=again) from error
