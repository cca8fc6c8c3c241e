"""What differs between two diagnoses: by two sets of rules, of two moments, or of two replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latdoctor.diagnosis.judge import FIRED
from latdoctor.diagnosis.result import Against, CauseShift, Check, CheckShift, Contrast, Diagnosis, Place
from latdoctor.evidence.differences import Difference

MOVED = 0.01  # probabilities are printed in whole per cent: less than one is no difference to anybody


def contrast(first: Diagnosis, second: Diagnosis) -> Contrast:
    """How `second` differs from `first`."""
    return Contrast(
        verdicts=(first.verdict, second.verdict),
        answers=(first.answer, second.answer),
        causes=_causes(first, second),
        checks=_checks(first, second),
    )


def against(name: str, than: str, first: Diagnosis, second: Diagnosis, values: Sequence[Difference]) -> Against:
    """How `second`, called `name`, differs from `first`, called `than`; of `values` only those that differ are kept."""
    return Against(name, than, contrast(first, second), tuple(one for one in values if one.is_one))


def _causes(first: Diagnosis, second: Diagnosis) -> tuple[CauseShift, ...]:
    before, after = _places(first), _places(second)
    titles = {cause.id: cause.title for cause in (*first.causes, *second.causes)}
    names = dict.fromkeys((*after, *before))
    shifts = [CauseShift(name, titles[name], before.get(name), after.get(name)) for name in names]
    return tuple(shift for shift in shifts if _has_moved(shift))


def _places(diagnosis: Diagnosis) -> Mapping[str, Place]:
    return {
        cause.id: Place(rank, cause.probability, cause.named) for rank, cause in enumerate(diagnosis.causes, start=1)
    }


def _has_moved(shift: CauseShift) -> bool:
    before, after = shift.before, shift.after
    if before is None or after is None:
        return True
    nearly = abs(before.probability - after.probability) < MOVED
    return not (nearly and before.rank == after.rank and before.named == after.named)


def _checks(first: Diagnosis, second: Diagnosis) -> tuple[CheckShift, ...]:
    before, after = ({check.id: check for check in one.checks} for one in (first, second))
    shifts = [_check(name, before.get(name), after.get(name)) for name in sorted(before.keys() | after.keys())]
    told = [shift for shift in shifts if shift.before != shift.after]
    return tuple(sorted(told, key=lambda shift: (not shift.appeared, not shift.went)))


def _check(name: str, before: Check | None, after: Check | None) -> CheckShift:
    shown = before if before and before.status == FIRED and not (after and after.status == FIRED) else after or before
    return CheckShift(
        id=name,
        kind=shown.kind if shown else "",
        before=before.status if before else None,
        after=after.status if after else None,
        says=shown.says if shown else name,
    )
