"""Looks at a service while an incident of it is open: is the alert real, what is wrong, and how does it go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from latdoctor import answering
from latdoctor.cli.answering import stamp
from latdoctor.cli.asking import Ask, Need, ask
from latdoctor.cli.options import Given
from latdoctor.cli.sources import Looked, unread, why_unread
from latdoctor.collect import COLLECTORS
from latdoctor.collect.look import look
from latdoctor.collect.source import Clock
from latdoctor.diagnosis.diagnose import diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rules import RuleSet
from latdoctor.errors import LatdoctorError
from latdoctor.evidence.bundle import Bundle
from latdoctor.evidence.model import Evidence, Window
from latdoctor.incident import events
from latdoctor.incident.alerted_incidents import AlertedIncident
from latdoctor.incident.confirming import confirmed, unseen
from latdoctor.incident.intake import Bodies, Intake
from latdoctor.incident.keeping import kept
from latdoctor.incident.sampling import continued, sample

Say = Callable[[str], None]


class Attendance:
    """Of what `given` names, for as long as it runs. `wake` is called when an incident was opened."""

    def __init__(self, given: Given, rules: RuleSet, intake: Intake, every: float, clock: Clock, say: Say) -> None:
        self._given = given
        self._rules = rules
        self._intake = intake
        self._every = every
        self._clock = clock
        self._say = say
        self._woken = threading.Event()
        self._before: Bundle | None = None
        self._read = True  # whether the last look saw anything of what is named

    def wake(self) -> None:
        self._woken.set()

    def go_on(self) -> None:
        """Until it is interrupted."""
        while True:
            begun = time.monotonic()
            period = self.turn()
            self._woken.wait(max(0.0, period - (time.monotonic() - begun)))
            self._woken.clear()

    def turn(self) -> float:
        """One look, where an incident is open, and what it says, journaled. Gives the seconds to the next turn.

        Whatever fails is told, and tried again then.
        """
        try:
            incident = self._intake.watched()
            if incident is not None:
                return max(self._every, self._look(incident))
            self._before, self._read = None, True
        except LatdoctorError as error:
            self._say(str(error))
        return self._every

    def _look(self, incident: AlertedIncident) -> float:
        """Gives how many seconds it speaks of, where that is a history's window: the next must not overlap with it."""
        wanted = ask(self._given, Need.IF_THERE)  # each time: what is configured, and what "now" is, may have changed
        bundle = look(COLLECTORS, wanted.request, wanted.context, self._clock, baseline=wanted.baseline)
        whole = continued(bundle, self._before)
        self._before = bundle
        evidence, _ = answering.seen(whole)
        looked = Looked(bundle, wanted.named)
        if self._was_read(incident, looked, evidence):  # else the time is left out: nobody has seen it
            sampled = sample(evidence, _window(whole, wanted), wanted.context.slo_p99)
            self._intake.journal.append(incident.id, events.SAMPLED, sampled)
        if incident.confirmed != events.REAL:
            self._confirm(incident, looked)
        return wanted.request.prometheus.window if wanted.request.prometheus else 0.0

    def _was_read(self, incident: AlertedIncident, looked: Looked, evidence: Evidence) -> bool:
        """Whether anything that was named could be read; told where that has changed."""
        read = not _nothing_read(looked, evidence)
        if read != self._read:
            said = "the service is read again" if read else f"the service cannot be read: {why_unread(looked)}"
            self._say(f"{incident.id}: {said}")
        self._read = read
        return read

    def _confirm(self, incident: AlertedIncident, looked: Looked) -> None:
        """Journals what the look says of the alert, unless it adds nothing to what was said before."""
        diagnosis = self._diagnosis(looked)
        said = unseen(why_unread(looked)) if diagnosis is None else confirmed(diagnosis)
        if said.status == incident.confirmed or (said.status == events.UNKNOWN and incident.confirmed):
            return
        bodies: Bodies = [(incident.id, events.CONFIRMED, said)]
        if diagnosis is not None:
            told = kept(self._intake.place, incident.id, looked.bundle, diagnosis)
            bodies.append((incident.id, events.DIAGNOSED, told.diagnosed))
            for trouble in told.troubles:
                self._say(f"{incident.id}: {trouble}")
        self._intake.journal.append_all(bodies)
        self._say(f"{incident.id}: {_WORDS[said.status]}: {said.says}")

    def _diagnosis(self, looked: Looked) -> Diagnosis | None:
        """None where nothing that was named could be read."""
        evidence, coverage = answering.seen(looked.bundle)
        if _nothing_read(looked, evidence):
            return None
        return diagnose(answering.case(looked.bundle, evidence, coverage), self._rules, stamp())


_WORDS = {events.REAL: "confirmed", events.FALSE_ALARM: "a false alarm", events.UNKNOWN: "not known whether it is real"}


def _nothing_read(looked: Looked, evidence: Evidence) -> bool:
    return bool(looked.asked) and len(unread(looked, evidence)) == len(looked.asked)


def _window(bundle: Bundle, wanted: Ask) -> Window:
    history = wanted.request.prometheus
    if history is None or wanted.request.servers:
        return bundle.window
    return Window(history.until - history.window, history.until)
