"""Damage to a version in the model registry, as by a broken upload or a failing disk."""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from pathlib import Path

import msgspec

from latdoctor.lab.server.versions.model_registry import MANIFEST, WEIGHTS, RefusalCode


class ModelDamage(StrEnum):
    """What is wrong with the version's files."""

    FLIPPED_BIT = "flipped-bit"
    TRUNCATED = "truncated"
    MISSING = "missing"
    EMPTY = "empty"
    PICKLE = "pickle"  # another format, with its right size and checksum in the manifest
    BAD_MANIFEST = "bad-manifest"


# The code with which each is refused.
REFUSED_AS = {
    ModelDamage.FLIPPED_BIT: RefusalCode.WRONG_CHECKSUM,
    ModelDamage.TRUNCATED: RefusalCode.WRONG_SIZE,
    ModelDamage.MISSING: RefusalCode.MISSING_FILE,
    ModelDamage.EMPTY: RefusalCode.WRONG_SIZE,
    ModelDamage.PICKLE: RefusalCode.WRONG_FORMAT,
    ModelDamage.BAD_MANIFEST: RefusalCode.BAD_MANIFEST,
}


_PICKLED = b"\x80\x04}\x94\x8c\x07weights\x94]\x94s."  # {"weights": []}


def damage_version(registry: Path, version: str, damage: ModelDamage, at: int = -1) -> None:
    """Damages a version in place. `at`: the byte whose bit is flipped, or from which it is truncated; -1: the middle.

    Raises OSError.
    """
    weights, manifest = registry / version / WEIGHTS, registry / version / MANIFEST
    for path in (weights, manifest):
        path.chmod(0o600)
    size = weights.stat().st_size
    at = size // 2 if at < 0 else at
    match damage:
        case ModelDamage.FLIPPED_BIT:
            with weights.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1]))
        case ModelDamage.TRUNCATED:
            os.truncate(weights, at)
        case ModelDamage.MISSING:
            weights.unlink()
        case ModelDamage.EMPTY:
            os.truncate(weights, 0)
        case ModelDamage.PICKLE:
            _replace(weights, manifest, _PICKLED)
        case ModelDamage.BAD_MANIFEST:
            manifest.write_bytes(manifest.read_bytes()[:-20])


def _replace(weights: Path, manifest: Path, content: bytes) -> None:
    """Another file, and a manifest that describes it rightly: only its format is wrong."""
    weights.write_bytes(content)
    whole = msgspec.json.decode(manifest.read_bytes())
    whole |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest.write_bytes(msgspec.json.encode(whole))
