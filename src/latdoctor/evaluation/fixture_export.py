"""Turns a look of a recorded run into a small bundle that may stand in a repository.

It is redacted as a bundle of anybody's is, and the cgroups of the machine that recorded it get names that tell nothing.
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
    """Writes the plain look of `recorded` to `path`. Raises BundleError, OperationError where a name would remain."""
    with opened(recorded.bundle) as whole:
        plain = next(view.bundle for view in variants(whole, recorded.told) if view.name == PLAIN)
        redactor = Redactor()
        save(redacted(anonymous(plain), redactor), path, __version__, redactor)


def anonymous(bundle: Bundle) -> Bundle:
    """`bundle` with other names for the cgroups of its host samples. Raises OperationError where one remains."""
    samples = [one.read().decode("utf-8", "surrogateescape") for one in bundle.artifacts if one.collector == HOST]
    names = {name for text in samples for name in _cgroups(text)}
    # The longest first: a group's parents are parts of its name.
    other = {name: f"group-{number}" for number, name in enumerate(sorted(names, key=lambda one: (-len(one), one)), 1)}
    return replace(bundle, artifacts=tuple(_renamed(one, other) for one in bundle.artifacts))


def _cgroups(text: str) -> set[str]:
    """The parts of the names of all cgroups that a sample speaks of."""
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
        raise OperationError(f"the name of a cgroup would remain: {left[0]}", where=artifact.name)
    return replace(artifact, content=text.encode("utf-8", "surrogateescape"))
