"""What an operator would do during the incident: look, choose the playbook that the diagnosis leads to, carry it out.

Nothing here knows what was put in.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from latdoctor.collectors import COLLECTORS
from latdoctor.collectors.base import CollectRequest
from latdoctor.collectors.runner import SystemClock, collect_bundle
from latdoctor.diagnosis.diagnose import Stamp, diagnose
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import UsageError
from latdoctor.evidence import baseline as baselines
from latdoctor.evidence.baseline import Baseline
from latdoctor.evidence.bundle import Bundle, Context
from latdoctor.http.client import Secret
from latdoctor.journal.entry import JournalEntry
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.pipeline import because, case, kept, observer, pages_for, remedy_of, seen
from latdoctor.remediation.executor import carry_out
from latdoctor.remediation.planner import Asked, Because, Plan, planned
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_loader import Library
from latdoctor.remediation.run_context import World
from latdoctor.remediation.run_result import Result
from latdoctor.remediation.target import Access, Target, kind_of

OBSERVATION = 10.0  # seconds: what `diagnose` takes where nothing else is said
TARGET = "reference"
_REPLICA = re.compile(r"\breplica/([^/@]+)")


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """What an operator knows of a service: its addresses, the token, and what was served while it was well."""

    servers: tuple[str, ...]  # base addresses; with a router those of its replicas, in the order of their names
    router: str
    token: str
    version: str  # of the model
    precision: str
    slo: float  # seconds

    @property
    def context(self) -> Context:
        return Context(TARGET, self.slo)


@dataclass(frozen=True, slots=True)
class SelectedPlaybook:
    """The playbook to be run, and the diagnosis that led to it (None: somebody just tries it)."""

    playbook: Playbook
    because: Because | None
    replicas: tuple[str, ...] = ()  # the replicas that the diagnosis points at


@dataclass
class SimulatedOperator:
    """Looks at `place` and mends it, with all that a run leaves behind in `state`."""

    place: ServiceAccess
    rules: RuleSet
    library: Library
    state: Path
    baseline: Baseline | None = None
    entries: list[JournalEntry] = field(default_factory=list)

    def looked(self, request: CollectRequest) -> Bundle:
        """What is seen within OBSERVATION seconds."""
        return collect_bundle(
            COLLECTORS, replace(request, window=OBSERVATION), self.place.context, SystemClock(), baseline=self.baseline
        )

    def remember(self, well: Bundle) -> None:
        """Keeps what was seen while all was well, to compare with."""
        self.baseline = baselines.record(seen(well)[0], TARGET, "")

    def diagnosis(self, bundle: Bundle) -> Diagnosis:
        return diagnose(case(bundle, *seen(bundle)), self.rules, Stamp(uuid.uuid4().hex[:12], ""))

    def remedy(self, diagnosis: Diagnosis, given: str = "") -> SelectedPlaybook | None:
        """What the diagnosis leads to, or `given` for the cause of it that this playbook addresses."""
        found = remedy_of(diagnosis)
        if given:
            book = self.library.find(given)
            named = [cause for cause in diagnosis.causes if cause.named and cause.id in book.addresses]
            found = (given, because(diagnosis, named[0], named[0].probability)) if named else None
        if found is None:
            return None
        subjects = next(cause.subjects for cause in diagnosis.causes if cause.id == found[1].cause)
        return SelectedPlaybook(self.library.find(found[0]), found[1], _replicas(subjects))

    def planned(self, remedy: SelectedPlaybook) -> tuple[Plan, Access]:
        """Raises UsageError where it is not clear what shall be changed, OperationError where it cannot be read."""
        access = self._access(remedy)
        asked = Asked(remedy.playbook, self._settings(remedy), remedy.because)
        return planned(asked, self.library, access, time.time()), access

    def carried_out(self, plan: Plan, access: Access, request: CollectRequest, tell: Callable[[str], None]) -> Result:
        def heard(entry: JournalEntry) -> None:
            self.entries.append(entry)
            tell(entry.kind)

        world = World(
            journal=Journal.opened(self.state / JOURNAL),
            state=self.state,
            access=access,
            observe=observer(
                replace(request, servers=pages_for(access, request.servers, {}).watched),
                self.place.context,
                self.baseline,
                self.rules,
            ),
            keep=kept,
            tell=heard,
        )
        return carry_out(plan, self.library, world)

    def _access(self, remedy: SelectedPlaybook) -> Access:
        url = self._target(remedy)
        token = Secret(self.place.token)
        kind = kind_of(Access(Target(url, "", admin=url), token))
        return Access(Target(url, kind, admin=url), token)

    def _target(self, remedy: SelectedPlaybook) -> str:
        if self.place.router and "reference-router" in remedy.playbook.targets:
            return self.place.router
        if len(self.place.servers) == 1:
            return self.place.servers[0]
        (name,) = remedy.replicas if len(remedy.replicas) == 1 else ("",)
        if not name.isdecimal() or int(name) >= len(self.place.servers):
            raise UsageError("the diagnosis does not tell which replica is to be changed")
        return self.place.servers[int(name)]

    def _settings(self, remedy: SelectedPlaybook) -> dict[str, str]:
        """What only an operator can know: what was so before, and which replica it is."""
        known = {"version": self.place.version, "precision": self.place.precision}
        known |= {"replica": remedy.replicas[0] if remedy.replicas else ""}
        wanted = [parameter.name for parameter in remedy.playbook.parameters if known.get(parameter.name)]
        return {name: known[name] for name in wanted}


def _replicas(subjects: Sequence[str]) -> tuple[str, ...]:
    found = (_REPLICA.search(subject) for subject in subjects)
    return tuple(dict.fromkeys(match[1] for match in found if match))
