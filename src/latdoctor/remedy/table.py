"""The figures before and after a change, for the same subjects."""

from __future__ import annotations

from latdoctor.remedy.observation import Observation, signals_judged
from latdoctor.remedy.playbook import Playbook
from latdoctor.remedy.result import Measure

ALWAYS = ("latency.p99", "error.ratio", "arrival.rate", "queue.depth")


def measures(playbook: Playbook, before: Observation | None, after: Observation | None = None) -> tuple[Measure, ...]:
    """What the playbook's verification speaks of, and the usual pains, where a number was seen before."""
    if before is None:
        return ()
    verify = playbook.verify
    wanted = (*ALWAYS, *signals_judged([*verify.succeed, *verify.abort]))
    now = after.remembered if after else {}
    return tuple(
        Measure(signal, subject, value, now.get((signal, subject)))
        for name in dict.fromkeys(wanted)
        for (signal, subject), value in before.remembered.items()
        if signal == name
    )
