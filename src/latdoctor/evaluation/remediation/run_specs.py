"""The runs of the remediation benchmark: which incident, and which playbook."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, structs

from latdoctor.evaluation.run_spec import lasting, shipped_scenario
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.scenario import Scenario, names
from latdoctor.load.arrivals import OnOff, Poisson
from latdoctor.load.plan import MAX_PHASES, LoadPlan
from latdoctor.remediation.playbook_library import Library


class PlaybookChoice(StrEnum):
    """How the playbook of a run is chosen. The values are part of run names on disk."""

    DIAGNOSED = "diagnosed"  # the one that the diagnosis leads to
    GIVEN = "given"  # a fixed one, if it addresses a named cause
    WRONG = "wrong"  # a fixed one that does not address the fault


PROMO_RUSH, BUNDLE, ALONE = "promo-rush", "promo-rush-sop", "app.batching.token-budget"
QUICK = (PROMO_RUSH, "waits-too-long", "dependency-slow")
BEFORE_SECONDS = 12.0  # an observation of ten seconds, and one second on either side
SLICE = 4.0  # seconds: the incident is sent in slices, so that any time of it has an exact P99
LIFETIME = 600.0  # seconds: the faults outlast the run
_ABOUT = 130.0  # seconds of a run, start and calibration included
_ABOUT_WRONG = 160.0  # a playbook without effect is verified for a minute before it is rolled back

# Playbooks that change something in these scenarios and do not remediate the fault. In `burst` the load falls on its
# own while the playbook is verified.
WRONG_PLAYBOOKS = (
    ("dependency-slow", "app.batching.by-complexity"),
    ("slow-preprocess", "app.batching.adaptive-wait"),
    ("alloc-storm", "app.governance.lanes"),
    ("waits-too-long", "app.governance.queue-bound"),
    ("loop-block", "framework.alloc.compaction-schedule"),
    ("burst", "app.batching.by-complexity"),
)
# Playbooks that need not be the first one of the cause that they remove.
GIVEN_PLAYBOOKS = (
    (PROMO_RUSH, ALONE),
    (PROMO_RUSH, BUNDLE),
    ("bad-canary", "framework.model.canary-abort"),
    ("bad-canary", "framework.model.rollout-to-all"),
    ("overload", "app.governance.fallback"),
    ("overload", "app.governance.standby"),
    ("feature-overload", "app.governance.trim-features"),
)
WRONG_SEEDS = (1, 2, 3)  # repeated, because a wrong playbook could be verified by chance


class RemediationRunSpec(Struct, frozen=True):
    """One run. `playbook`: the fixed playbook; empty: the one that the diagnosis leads to."""

    kind: PlaybookChoice
    scenario: str
    playbook: str = ""
    seed: int = 1

    @property
    def run(self) -> str:
        """The name of the run and of its file."""
        return "-".join([self.kind, self.scenario, *([self.playbook] if self.playbook else []), str(self.seed)])

    @property
    def seconds(self) -> float:
        """The approximate duration."""
        return _ABOUT_WRONG if self.kind is PlaybookChoice.WRONG else _ABOUT

    @property
    def saturated(self) -> bool:
        """Whether the saturated server is measured too, with the fault and after remediation.

        Only in scenarios whose fault precedes the incident: the same server can be saturated before and after.
        """
        return self.scenario == PROMO_RUSH


def planned_runs(library: Library, *, quick: bool = False) -> tuple[RemediationRunSpec, ...]:
    """The runs of the benchmark, the quick ones first."""
    first = tuple(RemediationRunSpec(PlaybookChoice.DIAGNOSED, name) for name in QUICK)
    if quick:
        return first
    given = (RemediationRunSpec(PlaybookChoice.GIVEN, *pair) for pair in GIVEN_PLAYBOOKS)
    wrong = (RemediationRunSpec(PlaybookChoice.WRONG, *pair, seed) for seed in WRONG_SEEDS for pair in WRONG_PLAYBOOKS)
    others = (name for name in remediable_scenarios(library) if name not in QUICK)
    return (*first, *given, *wrong, *(RemediationRunSpec(PlaybookChoice.DIAGNOSED, name) for name in others))


def remediable_scenarios(library: Library) -> tuple[str, ...]:
    """The scenarios with a cause that a playbook addresses."""
    addressed = {cause for playbook in library.playbooks for cause in playbook.addresses}
    return tuple(name for name in names() if any(one.cause in addressed for one in shipped_scenario(name).causes))


def unattended_scenario(name: str) -> Scenario:
    """The scenario up to its incident, with faults that last until remediated. Raises UsageError, DefinitionError."""
    scenario = shipped_scenario(name)
    at = scenario.phases.index(scenario.incident)
    phases = tuple(
        structs.replace(
            phase,
            seconds=BEFORE_SECONDS if phase.name == BEFORE else phase.seconds,
            faults=lasting(phase.faults, LIFETIME),
        )
        for phase in scenario.phases[: at + 1]
    )
    return structs.replace(scenario, phases=phases, severities={})


def sliced_load(plan: LoadPlan) -> LoadPlan:
    """`plan` of an unattended scenario with its incident in slices, as many as a plan can have.

    A burst ends with the first slice.
    """
    *before, incident = plan.phases
    arrivals = incident.arrivals
    if isinstance(arrivals, OnOff) and arrivals.off_rate > 0:
        arrivals = Poisson(arrivals.off_rate)
    else:
        incident = structs.replace(incident, seconds=SLICE)
    more = (
        structs.replace(incident, name=f"{incident.name}-{number}", seconds=SLICE, arrivals=arrivals)
        for number in range(2, MAX_PHASES - len(before) + 1)
    )
    return structs.replace(plan, phases=(*before, incident, *more))
