"""What the evidence says of one subject by itself: with its parts and what it runs on, without its siblings."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.evidence.model import Evidence


def subjects(evidence: Evidence) -> Sequence[str]:
    """Every subject that something is known of, and what they belong to; sorted."""
    named = {one.subject for one in evidence.readings} | {one.subject for one in evidence.series}
    named |= {one.subject for one in evidence.distributions} | {one.subject for one in evidence.events}
    named |= {subject for _, subject in evidence.looked}
    return sorted({owner for subject in named for owner in evidence.lineage(subject)})


def branch(evidence: Evidence, subject: str) -> Evidence:
    """The pieces on the line of `subject`: its own, its parts', those of what it is part of, and general gaps."""
    above = set(evidence.lineage(subject))

    def own(name: str) -> bool:
        return name in above or subject in evidence.lineage(name)

    return Evidence(
        subjects=tuple(one for one in evidence.subjects if own(one.id)),
        readings=tuple(one for one in evidence.readings if own(one.subject)),
        series=tuple(one for one in evidence.series if own(one.subject)),
        distributions=tuple(one for one in evidence.distributions if own(one.subject)),
        events=tuple(one for one in evidence.events if own(one.subject)),
        looked=tuple(one for one in evidence.looked if own(one[1])),
        gaps=tuple(one for one in evidence.gaps if one.subject is None or own(one.subject)),
        clipped=tuple(one for one in evidence.clipped if own(one[1])),
    )
