"""How much of the tail a cause can account for: the share of its stage in what the slowest requests take longer.

It orders causes that are named, and tells nothing of how sure they are. Where nobody told the tail by stage, or not by
the stage that a cause acts on, all of it may be that cause's: 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.evidence.model import Evidence, is_unknown

SIGNAL, LABEL = "tail.share", "stage"
UNSEEN = 1.0
# What a server's log may call the part of the way that holds a stage, where it does not tell it by itself.
_WITHIN = {"preprocess": "prepare", "session": "prepare", "dependency": "prepare"}


def tail_shares(evidence: Evidence) -> Mapping[str, float]:
    """By stage, 0..1: the largest of all subjects, for any of them may be the one that hurts."""
    found: dict[str, float] = {}
    for one in evidence.readings_by_signal.get(SIGNAL, ()):
        stage = dict(one.labels).get(LABEL, "")
        if stage and not isinstance(one.value, str) and not is_unknown(one.value):
            found[stage] = max(found.get(stage, 0.0), min(1.0, max(0.0, one.value)))
    return found


def impact(acts_on: str, shares: Mapping[str, float]) -> float:
    """The share of the tail that lies in the stage `acts_on`."""
    return shares.get(acts_on, shares.get(_WITHIN.get(acts_on, ""), UNSEEN))
