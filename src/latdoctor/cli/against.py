"""`diagnose --against BUNDLE` and `--between A B`: what differs from another moment, or between two replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from latdoctor.cli.answering import stamp, the_case
from latdoctor.cli.asking import with_given_slo
from latdoctor.cli.options import Given
from latdoctor.cli.screen import notice_console
from latdoctor.diagnosis.contrast import against
from latdoctor.diagnosis.diagnose import Case, diagnose
from latdoctor.diagnosis.result import Against, Diagnosis
from latdoctor.diagnosis.rules import RuleSet
from latdoctor.errors import UsageError
from latdoctor.evidence.branch import branch, subjects
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.differences import differences, values
from latdoctor.evidence.model import kind_of
from latdoctor.text import clean

_SHOWN = 12


def another_moment(case: Case, diagnosis: Diagnosis, path: Path, rules: RuleSet, given: Given) -> Against:
    """The look against the bundle at `path`, judged by the same SLO where it was given. Raises BundleError."""
    with opened(path) as saved:
        if saved.context.target != case.context.target:
            ours, theirs = (clean(one.target, 200) for one in (case.context, saved.context))
            notice_console().print(f"{clean(str(path), 200)} is a look at {theirs}, and this is one at {ours}")
        other = the_case(replace(saved, context=with_given_slo(saved.context, given)))
    found = differences(values(other.evidence), values(case.evidence))
    return against("now", clean(str(path), 200), diagnose(other, rules, stamp()), diagnosis, found)


def two_subjects(case: Case, pair: tuple[str, str], rules: RuleSet) -> Against:
    """The second of `pair` against the first: each diagnosed by what is known of it alone. Raises UsageError."""
    known = subjects(case.evidence)
    for name in pair:
        if name not in known:
            raise UsageError(
                f"nothing was seen of {clean(name, 200)!r}", where="--between", next_step=_hint(name, known)
            )
    if pair[0] == pair[1]:
        raise UsageError(f"{pair[0]!r} was given twice", where="--between", next_step="name two subjects")
    kinds = [kind_of(name) for name in pair]
    if kinds[0] != kinds[1]:
        # What the one shows, the other cannot: each difference would be one of kind.
        raise UsageError(
            f"a {clean(kinds[0], 40)} and a {clean(kinds[1], 40)} show different things",
            where="--between",
            next_step="name two of one kind, such as two replicas or two GPUs",
        )
    first, second = (replace(case, evidence=branch(case.evidence, name)) for name in pair)
    found = differences(values(first.evidence), values(second.evidence))
    diagnoses = [diagnose(one, rules, stamp()) for one in (first, second)]
    return against(clean(pair[1], 200), clean(pair[0], 200), diagnoses[0], diagnoses[1], found)


def _hint(name: str, known: Sequence[str]) -> str:
    if not known:
        return "the look has no subject at all: see latdoctor diagnose -v"
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    listed = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    return clean(f"did you mean {', '.join(near)}?" if near else f"name two of {listed}", 2000)
