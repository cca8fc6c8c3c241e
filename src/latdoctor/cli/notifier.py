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
from latdoctor.incident.recorder import known, readable
from latdoctor.incident.sop.loader import followed
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal import state_dir
from latdoctor.journal.locks import Busy
from latdoctor.journal.store import Journal
from latdoctor.notify.dispatcher import Delivered, Office, Result, deliver
from latdoctor.notify.outbox import Due, news, outbox
from latdoctor.notify.receiver import Receiver
from latdoctor.notify.transport import keys
from latdoctor.report.notifications import line_of
from latdoctor.sanitize import clean

WITHIN = 30.0  # seconds for what is asked for by `latdoctor notify send`
AT_THE_END = 5.0  # seconds that a command waits at its end for what it has not told yet
PERIOD = 30.0  # seconds between two looks at what is due by time alone: a stage that is late, a pause that is over
AT_ONCE = 0.5  # seconds of tries before the next look at the journal: less than any pause, so that none is slept
LEAST = 1.0  # seconds between two looks: in a storm of alerts the journal is not read for each
BUSY = 0.5  # seconds before the next look where another process is at it

Say = Callable[[str], None]


def look(journal: Journal, receiver: Receiver, incident: str = "", *, again: bool = False) -> Due:
    """What `receiver` is due, of one incident or of all. Raises JournalError, OperationError."""
    wanted = [one for one in known(journal) if incident in ("", one.id)]
    now, place = journal.clock(), journal.path.parent
    with readable(journal):
        return outbox(receiver, wanted, now, lambda one: news(_sop_of(one, place), one, now), again=again)


def _sop_of(incident: Incident, place: Path) -> Sop | None:
    """The SOP that it was opened with; None where that is not here: then nobody is told of its stages."""
    try:
        return followed(place, incident)
    except LatdoctorError:
        return None


@dataclass(slots=True)
class Told:
    """How it went with one receiver; `why` it did not go at all."""

    receiver: Receiver
    done: Delivered
    why: str = ""


def send_all(
    receivers: Sequence[Receiver], journal: Journal, incident: str = "", *, again: bool = False, as_json: bool = False
) -> tuple[Told, ...]:
    """Tells each what it is due, all at the same time; each try is told on stderr as it ends."""
    office = Office(journal, journal.path.parent, hear=(lambda _: None) if as_json else _heard)
    told = [Told(receiver, Delivered()) for receiver in receivers]
    threads = [threading.Thread(target=_send, args=(one, office, incident, again), daemon=True) for one in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(told)


def _send(told: Told, office: Office, incident: str, again: bool) -> None:
    once = [again]  # what was given up is tried once, not until the time is over

    def looks() -> Due:
        return look(office.journal, told.receiver, incident, again=bool(once and once.pop()))

    until = time.monotonic() + WITHIN
    try:
        while True:
            try:
                told.done = deliver(told.receiver, keys(told.receiver), looks, office, WITHIN)
                return
            except Busy:  # another process tells it the same
                if time.monotonic() > until:
                    raise
                time.sleep(BUSY)
    except LatdoctorError as error:
        told.why = _line(f"{told.receiver.name} is not told", error)
    except Exception as error:  # noqa: BLE001 - a thread has nobody above it who would hear
        told.why = f"{told.receiver.name} is not told: a defect in latdoctor ({type(error).__name__})"


def _heard(result: Result) -> None:
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
    criers = [_Crier(receiver, place, tell) for receiver in receivers]

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


def tell_now(tell: Say = say) -> None:
    """For a command that has journaled something and is done: tells whatever is due, as `notifying` does."""
    with notifying(tell) as poke:
        poke()


class _Crier:
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
            office = Office(journal, self._place, hear=self._hear)
            looks = partial(look, journal, self._receiver)
            done = deliver(self._receiver, keys(self._receiver), looks, office, AT_ONCE)
        except Busy:
            return BUSY
        except LatdoctorError as error:
            self._once(_line(f"{self._receiver.name} is not told", error))
            return PERIOD
        except Exception as error:  # noqa: BLE001 - a defect here must not end what mends
            self._once(f"{self._receiver.name} is not told: a defect in latdoctor ({type(error).__name__})")
            return PERIOD
        return PERIOD if done.wait is None else done.wait

    def _hear(self, result: Result) -> None:
        if not result.outcome.sent:
            self._once(f"{self._receiver.name} is not told of {result.message.what}: {result.outcome.why}")

    def _once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._tell(f"latdoctor: {clean(line, 500)}")


def _line(what: str, error: LatdoctorError) -> str:
    return clean(f"{what}: {error}".replace("\n", "; "), 500)
