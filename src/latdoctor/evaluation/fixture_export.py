"""Exports the observation of a recorded run as a small bundle for the repository.

The bundle is redacted like any other, and the cgroups of the recording machine are renamed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from latdoctor import __version__
from latdoctor.errors import OperationError
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import HOST, PLAIN, variants
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.redactor import Redactor

_OF_PROCESS = re.compile(r"(?<=:/)[^\s\\\"]+")  # in /proc/PID/cgroup: `0::/NAME`, `4:cpu,cpuacct:/NAME`
_FILE_OF = re.compile(r"\"(/proc/[^\"]+/cgroup)\":\"((?:[^\"\\]|\\.)*)\"")


def promote(recorded: RecordedRun, path: Path) -> None:
    """Writes the plain variant of `recorded` to `path`. Raises BundleError, OperationError where a name remains."""
    with opened(recorded.bundle) as whole:
        plain = next(view.bundle for view in variants(whole, recorded.context) if view.name == PLAIN)
        redactor = Redactor()
        save(redacted(anonymized(plain), redactor), path, __version__, redactor)


def anonymized(bundle: Bundle) -> Bundle:
    """`bundle` with renamed cgroups in its host samples. Raises OperationError where a name remains."""
    samples = [one.read().decode("utf-8", "surrogateescape") for one in bundle.artifacts if one.collector == HOST]
    names = {name for text in samples for name in _cgroups(text)}
    # The longest first: a group's name contains those of its parents.
    other = {name: f"group-{number}" for number, name in enumerate(sorted(names, key=lambda one: (-len(one), one)), 1)}
    return replace(bundle, artifacts=tuple(_renamed(one, other) for one in bundle.artifacts))


def _cgroups(text: str) -> set[str]:
    """The parts of all cgroup names in a sample."""
    found = set()
    for _, content in _FILE_OF.findall(text):
        for name in _OF_PROCESS.findall(content.replace("\\n", " ")):
            found |= {part for part in name.split("/") if part}
    return found


def _renamed(artifact: Artifact, other: dict[str, str]) -> Artifact:
    if artifact.collector != HOST or not other:
        return artifact
    text = artifact.read().decode("utf-8", "surrogateescape")
    for name, new in other.items():
        text = re.sub(rf"(?<=/){re.escape(name)}(?=[/\\\"\s]|$)", new, text)
    if left := [name for name in other if f"/{name}/" in text or f"/{name}\\n" in text]:
        raise OperationError(f"a cgroup name could not be replaced: {left[0]}", where=artifact.name)
    return replace(artifact, content=text.encode("utf-8", "surrogateescape"))
