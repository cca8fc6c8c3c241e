"""Has a fault of the cluster remediated as an operator would: by the playbook that the diagnosis leads to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.case_from_bundle import case, seen
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.named_subjects import named_subjects
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError
from latdoctor.evidence.bundle_files import opened
from latdoctor.remediation.diagnosed_parameters import diagnosed_names
from latdoctor.remediation.playbook_library import shipped as shipped_playbooks
from latdoctor.remediation.target import TargetKind
from latdoctor.sanitize import clean

VERIFIED, ROLLED_BACK = 0, 3  # exit codes of `latdoctor remediate`
_REFUSED = (1, 2, 5)  # nothing was changed, a parameter is missing, a guard refuses
MOST_SECONDS = 300.0
_STAMP = Stamp("bench", "")


class ClusterRemediation(Struct, frozen=True):
    """One run of a playbook: its id, the exit code of `latdoctor remediate`, and why it ended so."""

    playbook: str
    exit_code: int
    reason: str = ""

    @property
    def is_verified(self) -> bool:
        return self.exit_code == VERIFIED

    @property
    def is_rolled_back(self) -> bool:
        return self.exit_code == ROLLED_BACK


class _Result(Struct, frozen=True):
    reason: str = ""


class _Results(Struct, frozen=True):
    """What `latdoctor remediate -o json` prints."""

    results: tuple[_Result, ...]


def remediate(bundle: Path, rules: RuleSet, sources: Sequence[str]) -> ClusterRemediation | None:
    """Run the playbooks that the diagnosis of `bundle` leads to until one is not refused; None: it leads to none.

    `sources`: options of the command line. Raises BundleError, and OperationError where one does not end.
    """
    with opened(bundle) as one:
        playbooks = _playbooks(diagnose(case(one, *seen(one)), rules, _STAMP))
    result = None
    for playbook, settings in playbooks.items():
        result = _run(playbook, (*settings, *sources))
        if result.exit_code not in _REFUSED:
            break
    return result


def _run(playbook: str, options: Sequence[str]) -> ClusterRemediation:
    command = [sys.executable, "-m", "latdoctor", "remediate", "--playbook", playbook, *options]
    with tempfile.TemporaryDirectory(prefix="latdoctor-state-") as state:
        try:
            done = subprocess.run(  # noqa: S603  # our own interpreter and module
                [*command, "--apply", "--yes", "--approve", "--wait", "--no-incident", "--output", "json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=MOST_SECONDS,
                env={**os.environ, "LATDOCTOR_STATE": state},
            )
        except subprocess.TimeoutExpired as error:
            raise OperationError(f"{playbook} did not end within {MOST_SECONDS:g} s") from error
    return ClusterRemediation(playbook, done.returncode, _reason(done.stdout, done.stderr))


def _playbooks(diagnosis: Diagnosis) -> dict[str, tuple[str, ...]]:
    """The playbooks of named causes that change objects of a cluster, with the first node or container they name."""
    library = shipped_playbooks()
    found: dict[str, tuple[str, ...]] = {}
    for cause in diagnosis.causes:
        for name in cause.playbooks if cause.named else ():
            playbook = library.find(name)
            if TargetKind.KUBERNETES in playbook.targets:
                known = diagnosed_names(playbook, named_subjects(cause, diagnosis))
                found[name] = tuple(f"--set={parameter}={names[0]}" for parameter, names in known.items())
    return found


def _reason(output: str, errors: str) -> str:
    """The reason in the result; without a result the error."""
    try:
        results = msgspec.json.decode(output, type=_Results).results
    except msgspec.MsgspecError:
        return clean(errors.strip().partition("\n")[0], 300)
    return clean("; ".join(one.reason for one in results if one.reason), 300)
