"""Evidence with some of its subjects renamed, where several sources report one thing under different names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from latdoctor.evidence.model import Evidence, Gap, Subject


def renamed(
    evidence: Evidence, names: Mapping[str, str], parents: Mapping[str, str | None], gaps: Iterable[Gap] = ()
) -> Evidence:
    """`names`: the new name by the old one; `parents`: of every subject, by its new name; `gaps` are added."""

    def name(subject: str) -> str:
        return names.get(subject, subject)

    remaining = dict.fromkeys(name(one.id) for one in evidence.subjects)
    reported = (structs.replace(gap, subject=name(gap.subject)) if gap.subject else gap for gap in evidence.gaps)
    return structs.replace(
        evidence,
        subjects=tuple(Subject(one, parents.get(one)) for one in remaining),
        readings=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.readings),
        series=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.series),
        distributions=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.distributions),
        events=tuple(structs.replace(one, subject=name(one.subject)) for one in evidence.events),
        looked=tuple(dict.fromkeys((signal, name(subject)) for signal, subject in evidence.looked)),
        gaps=tuple(dict.fromkeys((*reported, *gaps))),
        clipped=tuple(dict.fromkeys((signal, name(subject)) for signal, subject in evidence.clipped)),
    )
