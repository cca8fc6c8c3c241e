"""Sends pending notifications to the configured receivers, at once or in the background of a command.

`notifying` is for commands that journal events of an incident: they call the yielded function after that; it returns
immediately and never raises. Each receiver has a thread, so that a slow one delays no other. What is not sent when the
command ends stays pending for `latdoctor notify send` or the listener.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from latdoctor.cli.config_file import configuration
from latdoctor.cli.console import notice
from latdoctor.errors import LatdoctorError
from latdoctor.incident.recorder import all_incidents, unreadable_as_error
from latdoctor.incident.sop.loader import sop_of_incident
from latdoctor.incident.sop.model import Sop
from latdoctor.incident.state import Incident
from latdoctor.journal import state_dir
from latdoctor.journal.locks import LockHeldError
from latdoctor.journal.store import Journal
from latdoctor.notify.journaled_delivery import DeliveryContext, DeliveryResult, DeliverySummary, deliver
from latdoctor.notify.outbox import DueMessages, due_for_all, sop_notices, without_past
from latdoctor.notify.receiver_config import Receiver
from latdoctor.notify.transport import load_keys
from latdoctor.report.notifications import line_of
from latdoctor.sanitize import clean

WITHIN = 30.0  # seconds for `latdoctor notify send`
AT_THE_END = 5.0  # seconds that a command waits at its end for unsent messages
PERIOD = 30.0  # seconds between two checks for messages due by time alone: a late stage, a retry
AT_ONCE = 0.5  # seconds of attempts before the journal is read again: less than any pause, so that none is slept
LEAST = 1.0  # seconds between two checks: limits journal reads in a storm of alerts
BUSY = 0.5  # seconds before the next check while another process is sending

Say = Callable[[str], None]


def due_now(journal: Journal, receiver: Receiver, incident: str = "", *, again: bool = False) -> DueMessages:
    """Messages due for `receiver`, of one incident or of all. Raises JournalError, OperationError."""
    selected = [one for one in all_incidents(journal) if incident in ("", one.id)]
    now, place = journal.clock(), journal.path.parent
    with unreadable_as_error(journal):
        if not incident:
            selected = list(without_past(receiver, selected))
        return due_for_all(receiver, selected, now, lambda one: sop_notices(_sop_of(one, place), one, now), again=again)


def _sop_of(incident: Incident, place: Path) -> Sop | None:
    """SOP of the incident; None where it is not available: then its stages are not notified."""
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
    """Send to all receivers in parallel; each attempt is logged on stderr."""
    office = DeliveryContext(journal, journal.path.parent, on_result=(lambda _: None) if as_json else _log_result)
    deliveries = [ReceiverDelivery(receiver, DeliverySummary()) for receiver in receivers]
    threads = [threading.Thread(target=_send, args=(one, office, incident, again), daemon=True) for one in deliveries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(deliveries)


def _send(deliveries: ReceiverDelivery, office: DeliveryContext, incident: str, again: bool) -> None:
    once = [again]  # given-up messages are retried once only

    def read_due() -> DueMessages:
        return due_now(office.journal, deliveries.receiver, incident, again=bool(once and once.pop()))

    until = time.monotonic() + WITHIN
    try:
        while True:
            try:
                deliveries.done = deliver(deliveries.receiver, load_keys(deliveries.receiver), read_due, office, WITHIN)
                return
            except LockHeldError:  # another process is sending to it
                if time.monotonic() > until:
                    raise
                time.sleep(BUSY)
    except LatdoctorError as error:
        deliveries.why = _line(f"{deliveries.receiver.name} is not notified", error)
    except Exception as error:  # noqa: BLE001 - the thread has no caller
        deliveries.why = f"{deliveries.receiver.name} is not notified: a defect in latdoctor ({type(error).__name__})"


def _log_result(result: DeliveryResult) -> None:
    notice(line_of(result))


@contextmanager
def notifying(log: Say = notice, seconds: float = AT_THE_END) -> Iterator[Callable[..., None]]:
    """Yield the function to call after journaling, with any arguments. Each error is logged once."""
    try:
        receivers = tuple(configuration().receivers.values())
        place = state_dir.folder() if receivers else Path()
    except LatdoctorError as error:
        log(_line("no receiver is notified", error))
        receivers, place = (), Path()
    criers = [_ReceiverThread(receiver, place, log) for receiver in receivers]

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


def notify_now(log: Say = notice) -> None:
    """Send all due messages at the end of a command that has journaled something."""
    with notifying(log) as poke:
        poke()


class _ReceiverThread:
    """Background sender for one receiver, started by its first `wake`."""

    def __init__(self, receiver: Receiver, place: Path, log: Say) -> None:
        self._receiver, self._place, self._log = receiver, place, log
        self._woken, self._ending = threading.Event(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._logged: set[str] = set()

    def wake(self) -> None:
        self._woken.set()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"notify {self._receiver.name}", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Check once more and send what is due then; retries are left."""
        self._ending.set()
        self._woken.set()

    def wait_for(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._once(f"{self._receiver.name}: messages are pending. Next: latdoctor notify send")

    def _run(self) -> None:
        while True:
            ending = self._ending.is_set()
            self._woken.clear()
            wait = self._deliver_once()
            if ending and wait:
                return
            self._ending.wait(LEAST)
            self._woken.wait(min(wait, PERIOD))

    def _deliver_once(self) -> float:
        """Send; return the seconds to the next retry. Errors never affect the command."""
        try:
            journal = Journal.opened(self._place / state_dir.JOURNAL)
            office = DeliveryContext(journal, self._place, on_result=self._on_result)
            read_due = partial(due_now, journal, self._receiver)
            done = deliver(self._receiver, load_keys(self._receiver), read_due, office, AT_ONCE)
        except LockHeldError:
            return BUSY
        except LatdoctorError as error:
            self._once(_line(f"{self._receiver.name} is not notified", error))
            return PERIOD
        except Exception as error:  # noqa: BLE001 - a defect here must not end a remediation
            self._once(f"{self._receiver.name} is not notified: a defect in latdoctor ({type(error).__name__})")
            return PERIOD
        return PERIOD if done.wait is None else done.wait

    def _on_result(self, result: DeliveryResult) -> None:
        if not result.outcome.sent:
            self._once(f"{self._receiver.name} is not notified of {result.message.what}: {result.outcome.why}")

    def _once(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            self._log(f"latdoctor: {clean(line, 500)}")


def _line(what: str, error: LatdoctorError) -> str:
    return clean(f"{what}: {error}".replace("\n", "; "), 500)
