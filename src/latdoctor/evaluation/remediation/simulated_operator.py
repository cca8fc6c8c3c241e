"""A simulated operator: observes, diagnoses, selects the playbook that the diagnosis leads to, and runs it.

The operator does not know the injected fault.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from latdoctor.case_from_bundle import because, case, kept, observer, pages_for, remedy_of, seen
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
from latdoctor.remediation.executor import execute
from latdoctor.remediation.planner import DiagnosisRef, Plan, PlanRequest, build_plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_result import Result
from latdoctor.remediation.target import Access, Target, TargetKind, detect_kind

OBSERVATION = 10.0  # seconds: the default of `diagnose --window`
TARGET = "reference"
_REPLICA = re.compile(r"\breplica/([^/@]+)")


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """The operator's access to a service: addresses, admin token, and the model served while it was healthy."""

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
    """The playbook to run, and the diagnosis that led to it (None: no diagnosis)."""

    playbook: Playbook
    because: DiagnosisRef | None
    replicas: tuple[str, ...] = ()  # the replicas that the diagnosis names


@dataclass
class SimulatedOperator:
    """Diagnoses and remediates a service; the journal and other files of a run are in `state`."""

    access: ServiceAccess
    rules: RuleSet
    library: Library
    state: Path
    baseline: Baseline | None = None
    entries: list[JournalEntry] = field(default_factory=list)

    def observe(self, request: CollectRequest) -> Bundle:
        """Collect evidence for OBSERVATION seconds."""
        return collect_bundle(
            COLLECTORS, replace(request, window=OBSERVATION), self.access.context, SystemClock(), baseline=self.baseline
        )

    def record_baseline(self, healthy: Bundle) -> None:
        self.baseline = baselines.record(seen(healthy)[0], TARGET, "")

    def diagnose(self, bundle: Bundle) -> Diagnosis:
        return diagnose(case(bundle, *seen(bundle)), self.rules, Stamp(uuid.uuid4().hex[:12], ""))

    def select_playbook(self, diagnosis: Diagnosis, playbook: str = "") -> SelectedPlaybook | None:
        """The playbook that the diagnosis leads to, or `playbook` if it addresses a named cause; None: neither."""
        found = remedy_of(diagnosis)
        if playbook:
            book = self.library.find(playbook)
            named = [cause for cause in diagnosis.causes if cause.named and cause.id in book.addresses]
            found = (playbook, because(diagnosis, named[0], named[0].probability)) if named else None
        if found is None:
            return None
        subjects = next(cause.subjects for cause in diagnosis.causes if cause.id == found[1].cause)
        return SelectedPlaybook(self.library.find(found[0]), found[1], _replicas(subjects))

    def plan(self, selected: SelectedPlaybook) -> tuple[Plan, Access]:
        """The plan. Raises UsageError for an ambiguous replica, OperationError for an unreadable target."""
        access = self._access(selected)
        request = PlanRequest(selected.playbook, self._settings(selected), selected.because)
        return build_plan(request, self.library, access, time.time()), access

    def execute(self, plan: Plan, access: Access, request: CollectRequest, log: Callable[[str], None]) -> Result:
        def on_entry(entry: JournalEntry) -> None:
            self.entries.append(entry)
            log(entry.kind)

        world = RunContext(
            journal=Journal.opened(self.state / JOURNAL),
            state=self.state,
            access=access,
            observe=observer(
                replace(request, servers=pages_for(access, request.servers, {}).watched),
                self.access.context,
                self.baseline,
                self.rules,
            ),
            save_bundle=kept,
            on_entry=on_entry,
        )
        return execute(plan, self.library, world)

    def _access(self, selected: SelectedPlaybook) -> Access:
        url = self._target(selected)
        token = Secret(self.access.token)
        kind = detect_kind(Access(Target(url, TargetKind.UNKNOWN, admin=url), token))
        return Access(Target(url, kind, admin=url), token)

    def _target(self, selected: SelectedPlaybook) -> str:
        if self.access.router and "reference-router" in selected.playbook.targets:
            return self.access.router
        if len(self.access.servers) == 1:
            return self.access.servers[0]
        (name,) = selected.replicas if len(selected.replicas) == 1 else ("",)
        if not name.isdecimal() or int(name) >= len(self.access.servers):
            raise UsageError("the diagnosis does not name the replica to change")
        return self.access.servers[int(name)]

    def _settings(self, selected: SelectedPlaybook) -> dict[str, str]:
        """The parameters that the diagnosis does not have: the previous model version, precision, and the replica."""
        known = {"version": self.access.version, "precision": self.access.precision}
        known |= {"replica": selected.replicas[0] if selected.replicas else ""}
        names = [parameter.name for parameter in selected.playbook.parameters]
        return {name: known[name] for name in names if known.get(name)}


def _replicas(subjects: Sequence[str]) -> tuple[str, ...]:
    found = (_REPLICA.search(subject) for subject in subjects)
    return tuple(dict.fromkeys(match[1] for match in found if match))
