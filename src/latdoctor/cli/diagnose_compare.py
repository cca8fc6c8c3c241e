"""`--against BUNDLE` and `--between A B`: the diagnosis of one time or subject compared with that of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from latdoctor.cli.collect_and_diagnose import case_of, stamp
from latdoctor.cli.console import notice_console
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import with_slo_options
from latdoctor.diagnosis.comparison import against
from latdoctor.diagnosis.diagnose import Case, diagnose
from latdoctor.diagnosis.result import Against, Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import UsageError
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.diff import differences, values
from latdoctor.evidence.model import kind_of
from latdoctor.evidence.redaction.documents import without_secrets_in
from latdoctor.evidence.subject_branch import branch, subjects
from latdoctor.sanitize import clean

_SHOWN = 12


def compare_with_bundle(
    case: Case, diagnosis: Diagnosis, path: Path, rules: RuleSet, sources: SourceOptions
) -> Against:
    """The diagnosis compared with the bundle at `path`, with the same SLO options. Raises BundleError."""
    with opened(path) as saved:
        if saved.context.target != case.context.target:
            ours, theirs = (clean(one.target, 200) for one in (case.context, saved.context))
            notice_console().print(f"{clean(str(path), 200)} is a bundle of {theirs}, and this one is of {ours}")
        other = case_of(replace(saved, context=with_slo_options(saved.context, sources)))
    found = differences(values(other.evidence), values(case.evidence))
    return without_secrets_in(against("now", clean(str(path), 200), diagnose(other, rules, stamp()), diagnosis, found))


def compare_subjects(case: Case, pair: tuple[str, str], rules: RuleSet) -> Against:
    """The second of `pair` compared with the first, each diagnosed by its own evidence. Raises UsageError."""
    known = subjects(case.evidence)
    for name in pair:
        if name not in known:
            raise UsageError(
                f"there is no evidence of {clean(name, 200)!r}", where="--between", next_step=_hint(name, known)
            )
    if pair[0] == pair[1]:
        raise UsageError(f"{pair[0]!r} is named twice", where="--between", next_step="name two subjects")
    kinds = [kind_of(name) for name in pair]
    if kinds[0] != kinds[1]:
        # They have different signals: every difference would be one of kind.
        raise UsageError(
            f"a {clean(kinds[0], 40)} and a {clean(kinds[1], 40)} have different signals",
            where="--between",
            next_step="name two of one kind, such as two replicas or two GPUs",
        )
    first, second = (replace(case, evidence=branch(case.evidence, name)) for name in pair)
    found = differences(values(first.evidence), values(second.evidence))
    diagnoses = [diagnose(one, rules, stamp()) for one in (first, second)]
    return without_secrets_in(against(clean(pair[1], 200), clean(pair[0], 200), diagnoses[0], diagnoses[1], found))


def _hint(name: str, known: Sequence[str]) -> str:
    if not known:
        return "the evidence has no subject: see latdoctor diagnose -v"
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    listed = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    return clean(f"did you mean {', '.join(near)}?" if near else f"name two of {listed}", 2000)
