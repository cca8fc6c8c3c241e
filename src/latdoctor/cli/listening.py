"""What `latdoctor listen` does: a receiver on threads of its own, and the looks in this one."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from latdoctor.cli.addresses import masked
from latdoctor.cli.answering import rule_set
from latdoctor.cli.asking import Ask, Need, ask, settings_of
from latdoctor.cli.attending import Attendance
from latdoctor.cli.configuration import TargetSettings, configuration
from latdoctor.cli.interrupting import ended_by_sigterm
from latdoctor.cli.mending import own_folder
from latdoctor.cli.notifying import notifying
from latdoctor.cli.options import Given
from latdoctor.cli.saying import say
from latdoctor.cli.sop_starting import procedures
from latdoctor.cli.watching import pause_of
from latdoctor.collect.look import SystemClock
from latdoctor.collect.promql.access import authorization
from latdoctor.errors import UsageError
from latdoctor.incident import sop_files
from latdoctor.incident.events import Alerted
from latdoctor.incident.intake import About, Intake, Taken
from latdoctor.incident.receiver import receiving
from latdoctor.incident.wording import cut_in_words
from latdoctor.journal import state
from latdoctor.journal.store import Journal
from latdoctor.text import clean, fitted

AUTH, AUTH_FILE = "LATDOCTOR_LISTEN_AUTH", "LATDOCTOR_LISTEN_AUTH_FILE"
BY = "latdoctor listen"


@dataclass(frozen=True, slots=True)
class Listening:
    """What was asked of `listen`, as given."""

    place: str
    auth_file: Path | None
    close_on_resolve: bool
    sop: str
    sops: tuple[Path, ...]
    every: str
    rules: tuple[Path, ...]


def listen_until_ended(given: Given, how: Listening) -> None:
    """Until Ctrl-C or SIGTERM. Raises LatdoctorError for what can be known to be wrong before."""
    configuration()  # whom it would tell: what is wrong with that is told before an incident, not in it
    host, port = _place(how.place)
    secret = authorization(how.auth_file, os.environ, AUTH, AUTH_FILE, bare=True)
    _must_be_guarded(host, secret)
    rules, every = rule_set(how.rules), pause_of(how.every)
    settings = settings_of(given)
    looks = given.any_source or bool(settings.name)
    wanted = ask(given, Need.IF_THERE) if looks else None
    about = About(
        targets=_targets(wanted, settings) if wanted else (),
        sop=sop_files.find(procedures(how.sops), how.sop or sop_files.USUAL),
        by=BY,
        close_on_resolve=how.close_on_resolve,
    )
    folder = own_folder()
    intake = Intake(Journal.opened(folder / state.JOURNAL), folder, about)

    def heard(text: str) -> None:
        """What a look said has just been journaled."""
        _say(text)
        poke()

    attendance = Attendance(given, rules, intake, every, SystemClock(), heard) if looks else None

    def take(alerted: Alerted) -> Taken:
        taken = intake.take(alerted)
        _tell(alerted, taken)
        poke()
        if taken.opened and attendance:
            attendance.wake()
        return taken

    with (
        contextlib.suppress(KeyboardInterrupt),
        ended_by_sigterm(),
        notifying(_say) as poke,
        receiving(host, port, secret, take, _say) as url,
    ):
        poke()  # what was not sent when it ended the last time
        say(f"alerts are taken in at {url}; Ctrl-C ends")
        if attendance is None:
            say("no source was given: alerts are not confirmed, and nothing is sampled (--server URL, --target NAME)")
            threading.Event().wait()
        else:
            attendance.go_on()


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(
            f"{clean(text, 80)!r} is no place to listen at",
            where="--listen",
            next_step="write it such as 127.0.0.1:9095",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _must_be_guarded(host: str, secret: str) -> None:
    """Raises UsageError where anybody in the network could open incidents."""
    try:
        own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        own = host == "localhost"
    if not own and not secret:
        raise UsageError(
            f"anybody could send alerts to {clean(host, 80)}",
            where="--listen",
            next_step=f"put a token into a file and name it with --auth-file or in {AUTH_FILE}, or put it into {AUTH}",
        )


def _targets(wanted: Ask, settings: TargetSettings) -> tuple[str, ...]:
    """By which commands find the incident: the target's name, and where it is looked at and changed.

    A name that was made up of addresses (`a:8000 and 1 more`) is none that a command takes.
    """
    name = settings.name or ("" if wanted.request.servers else wanted.context.target)
    found = (name, *wanted.request.servers, *settings.admin)
    return tuple(dict.fromkeys(masked(clean(one, 200)) for one in found if one))


def _tell(alerted: Alerted, taken: Taken) -> None:
    names = ", ".join(dict.fromkeys(fitted(alert.name or alert.fingerprint, 80) for alert in alerted.alerts[:3]))
    if taken.opened:
        _say(f"{taken.incident}: opened by {names}. Next: latdoctor sop status --incident {taken.incident}")
    elif taken.new:
        _say(f"{taken.incident}: {taken.new} new of {names}")
    if taken.new and (cut := cut_in_words(alerted.alerts)):
        _say(f"{taken.incident}: {cut}")
    if taken.closed:
        _say(f"{taken.incident}: every alert is resolved; closed")
    elif taken.resolved and taken.new:
        _say(
            f"{taken.incident}: every alert is resolved; it stays open until the fix is verified:"
            f" latdoctor sop close --incident {taken.incident}"
        )


def _say(text: str) -> None:
    say(masked(clean(text)))
