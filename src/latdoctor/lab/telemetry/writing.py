"""Telemetry on disk: `bundle/` for diagnosis, `raw/` with the files as a user has them, and the truth elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from latdoctor.errors import UsageError
from latdoctor.evidence.bundle_files import save
from latdoctor.evidence.places import cannot_write
from latdoctor.lab.telemetry.making import Telemetry, Truth

_README = """\
{mark}

Nothing here was recorded. bundle/ is read by `latdoctor diagnose {folder}`; raw/ holds the same as files, which
`--metrics`, `--log` and `--trace` take; saved pages tell no rates where no time stands in them, the bundle does.
nvidia-smi.csv and tensorrt/ are for people: no collector reads them yet.
"""


def write(made: Telemetry, folder: Path) -> None:
    """Writes `bundle/`, `raw/` and README.txt below `folder`, which appears whole or not at all.

    Raises BundleError, also where something is at `folder` already.
    """
    bundle, raw = folder / "bundle", folder / "raw"
    save(made.bundle, bundle, made.mark)
    try:
        for name, file in made.raw.items():
            target = raw / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            os.utime(target, (file.written, file.written))
        (folder / "README.txt").write_text(_README.format(mark=made.mark, folder="bundle"))
    except OSError as error:
        raise cannot_write(folder, "the telemetry", error) from error


def write_truth(truth: Truth, path: Path) -> None:
    """Raises BundleError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n")
    except OSError as error:
        raise cannot_write(path, "the truth", error) from error


def must_be_apart(truth: Path, folder: Path) -> None:
    """Raises UsageError where the truth would lie in the folder that is diagnosed."""
    if truth.absolute().is_relative_to(folder.absolute()):
        raise UsageError(
            "the truth would lie where diagnosis looks",
            where=str(truth),
            next_step="name a file outside the folder of --output",
        )
