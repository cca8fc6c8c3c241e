"""Tells the configured receivers what they are due: all at once, or beside a command that goes on meanwhile.

`notifying` is for commands that journal something of an incident: what it gives is called after that, returns at once,
and never raises. Each receiver has a thread of its own, so that one who hangs holds up nobody else; what is not sent by
the time that the command ends is due still, for `latdoctor notify send` or the listener.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latdoctor.cli.config import configuration
from latdoctor.cli.console import say
from latdoctor.errors import LatdoctorError
from latdoctor.incident.recorder import all_incidents, unreadable_as_error
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal import state_dir
from latdoctor.journal.locks import LockHeldError
from latdoctor.journal.store import Journal
from latdoctor.notify.dispatcher import DeliveryContext, DeliveryResult, DeliverySummary, deliver
from latdoctor.notify.outbox import DueMessages, due_for_all, sop_notices
from latdoctor.notify.receiver import Receiver
from latdoctor.notify.transport import load_keys
from latdoctor.report.notifications import line_of
from latdoctor.sanitize import clean

WITHIN = 30.0  # seconds for what is asked for by `latdoctor notify send`
AT_THE_END = 5.0  # seconds that a command waits at its end for what it has not told yet
PERIOD = 30.0  # seconds between two looks at what is due by time alone: a stage that is late, a pause that is over
AT_ONCE = 0.5  # seconds of tries before the next look at the journal: less than any pause, so that none is slept
LEAST = 1.0  # seconds between two looks: in a storm of alerts the journal is not read for each
BUSY = 0.5  # seconds before the next look where another process is at it

Say = Callable[[str], None]


def due_now(journal: Journal, receiver: Receiver, incident: str = "", *, again: bool = False) -> DueMessages:
    """What `receiver` is due, of one incident or of all. Raises JournalError, OperationError."""
    wanted = [one for one in all_incidents(journal) if incident in ("", one.id)]
    now, place = journal.clock(), journal.path.parent
    with unreadable_as_error(journal):
        return due_for_all(receiver, wanted, now, lambda one: sop_notices(_sop_of(one, place), one, now), again=again)


def _sop_of(incident: Incident, place: Path) -> Sop | None:
    """The SOP that it was opened with; None where that is not here: then nobody is told of its stages."""
    try:
        return sop_of_incident(place, incident)
    except LatdoctorError:
        return None


@dataclass(slots=True)
class ReceiverDelivery:
    """How it went with one receiver; `why` it did not go at all."""

    receiver: Receiver
    done: DeliverySummary
    why: str = ""


def send_all(
    receivers: Sequence[Receiver], journal: Journal, incident: str = "", *, again: bool = False, as_json: bool = False
) -> tuple[ReceiverDelivery, ...]:
    """Tells each what it is due, all at the same time; each try is told on stderr as it ends."""
    office = DeliveryContext(journal, journal.path.parent, hear=(lambda _: None) if as_json else _heard)
    told = [ReceiverDelivery(receiver, DeliverySummary()) for receiver in receivers]
    threads = [threading.Thread(target=_send, args=(one, office, incident, again), daemon=True) for one in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(told)


def _send(told: ReceiverDelivery, office: DeliveryContext, incident: str, again: bool) -> None:
    once = [again]  # what was given up is tried once, not until the time is over

    def looks() -> DueMessages:
        return due_now(office.journal, told.receiver, incident, again=bool(once and once.pop()))

    until = time.monotonic() + WITHIN
    try:
        while True:
            try:
                told.done = deliver(told.receiver, load_keys(told.receiver), looks, office, WITHIN)
                return
            except LockHeldError:  # another process tells it the same
                if time.monotonic() > until:
                    raise
                time.sleep(BUSY)
    except LatdoctorError as error:
        told.why = _line(f"{told.receiver.name} is not told", error)
    except Exception as error:  # noqa: BLE001 - a thread has nobody above it who would hear
        told.why = f"{told.receiver.name} is not told: a defect in latdoctor ({type(error).__name__})"


def _heard(result: DeliveryResult) -> None:
    say(line_of(result))


@contextmanager
def notifying(tell: Say = say, seconds: float = AT_THE_END) -> Iterator[Callable[..., None]]:
    """Gives what is called after something was journaled, with anything. What fails is told by `tell`, once each."""
    try:
        receivers = tuple(configuration().receivers.values())
        place = state_dir.folder() if receivers else Path()
    except LatdoctorError as error:
        tell(_line("nobody is told of this", error))
        receivers, place = (), Path()
    criers = [_ReceiverThread(receiver, place, tell) for receiver in receivers]

    def poke(*_: object) -> None:
        for crier in criers:
            crier.wake()

    try:
        yield poke
    finally:
        for crier in criers:
            crier.finish()
        until = time.monotonic() + seconds
        for crier in criers:
            crier.wait_for(max(0.0, until - time.monotonic()))


def notify_now(tell: Say = say) -> None:
    """For a command that has journaled something and is done: tells whatever is due, as `notifying` does."""
    with notifying(tell) as poke:
        poke()


class _ReceiverThread:
    """Tells one receiver whatever becomes due, from its first waking on."""

    def __init__(self, receiver: Receiver, place: Path, tell: Say) -> None:
        self._receiver, self._place, self._tell = receiver, place, tell
        self._woken, self._ending = threading.Event(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()

    def wake(self) -> None:
        self._woken.set()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"notify {self._receiver.name}", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """One more look, and all that is due then; what has to wait is left."""
        self._ending.set()
        self._woken.set()

    def wait_for(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._once(f"{self._receiver.name} has not been told all of it. Next: latdoctor notify send")

    def _run(self) -> None:
        while True:
            ending = self._ending.is_set()
            self._woken.clear()
            wait = self._told()
            if ending and wait:
                return
            self._ending.wait(LEAST)
            self._woken.wait(min(wait, PERIOD))

    def _told(self) -> float:
        """Seconds until there is something to try again. Nothing that happens here may disturb what goes on beside."""
        try:
            journal = Journal.opened(self._place / state_dir.JOURNAL)
            office = DeliveryContext(journal, self._place, hear=self._hear)
            looks = partial(due_now, journal, self._receiver)
            done = deliver(self._receiver, load_keys(self._receiver), looks, office, AT_ONCE)
        except LockHeldError:
            return BUSY
        except LatdoctorError as error:
            self._once(_line(f"{self._receiver.name} is not told", error))
            return PERIOD
        except Exception as error:  # noqa: BLE001 - a defect here must not end what mends
            self._once(f"{self._receiver.name} is not told: a defect in latdoctor ({type(error).__name__})")
            return PERIOD
        return PERIOD if done.wait is None else done.wait

    def _hear(self, result: DeliveryResult) -> None:
        if not result.outcome.sent:
            self._once(f"{self._receiver.name} is not told of {result.message.what}: {result.outcome.why}")

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._tell(f"latdoctor: {clean(line, 500)}")


def _line(what: str, error: LatdoctorError) -> str:
    return clean(f"{what}: {error}".replace("\n", "; "), 500)
