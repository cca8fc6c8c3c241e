"""Which incidents are mended on the bench, by which playbook, and which playbooks are tried on purpose to no avail."""

from __future__ import annotations

from functools import cache

from msgspec import Struct, structs

from latdoctor.evaluation.run_spec import lasting
from latdoctor.lab.run_report import BEFORE
from latdoctor.lab.scenario import Scenario, find, names
from latdoctor.load.arrivals import OnOff, Poisson
from latdoctor.load.plan import MAX_PHASES, LoadPlan
from latdoctor.remediation.playbook_loader import Library

DIAGNOSED, GIVEN, WRONG = "diagnosed", "given", "wrong"
PROMO_RUSH, BUNDLE, ALONE = "promo-rush", "promo-rush-sop", "app.batching.token-budget"
QUICK = (PROMO_RUSH, "waits-too-long", "dependency-slow")
BEFORE_SECONDS = 12.0  # a look of ten seconds, and one before and after it
SLICE = 4.0  # seconds: the incident is sent in slices, so that any time of it has an exact P99
LIFETIME = 600.0  # seconds: nothing of the incident ends by itself
_ABOUT = 130.0  # seconds of a run, its start and its calibration included
_ABOUT_WRONG = 160.0  # what does not help is watched for a minute before it is taken back

# Playbooks that change something where they are tried, and do not mend what is wrong there. In `burst` the load falls
# by itself while the playbook is watched.
WRONGLY = (
    ("dependency-slow", "app.batching.by-complexity"),
    ("slow-preprocess", "app.batching.adaptive-wait"),
    ("alloc-storm", "app.governance.lanes"),
    ("waits-too-long", "app.governance.queue-bound"),
    ("loop-block", "framework.alloc.compaction-schedule"),
    ("burst", "app.batching.by-complexity"),
)
WRONG_SEEDS = (1, 2, 3)  # what could verify itself by chance is tried more than once


class RemediationRunSpec(Struct, frozen=True):
    """One run. `playbook`: which one is taken, whatever is diagnosed; empty: the one that the diagnosis leads to."""

    kind: str  # DIAGNOSED | GIVEN | WRONG
    scenario: str
    playbook: str = ""
    seed: int = 1

    @property
    def run(self) -> str:
        """Its name, and that of its file."""
        return "-".join([self.kind, self.scenario, *([self.playbook] if self.playbook else []), str(self.seed)])

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return _ABOUT_WRONG if self.kind == WRONG else _ABOUT

    @property
    def saturated(self) -> bool:
        """Whether it is also measured how many calls an answer takes when the server is never idle. That needs the
        fault to be there before the incident, so that the same server can be saturated with it and without.
        """
        return self.scenario == PROMO_RUSH


def planned_runs(library: Library, *, quick: bool = False) -> tuple[RemediationRunSpec, ...]:
    """The runs, the quick ones first."""
    first = tuple(RemediationRunSpec(DIAGNOSED, name) for name in QUICK)
    if quick:
        return first
    given = tuple(RemediationRunSpec(GIVEN, PROMO_RUSH, playbook) for playbook in (ALONE, BUNDLE))
    wrong = tuple(RemediationRunSpec(WRONG, *tried, seed) for seed in WRONG_SEEDS for tried in WRONGLY)
    others = tuple(RemediationRunSpec(DIAGNOSED, name) for name in remediable_scenarios(library) if name not in QUICK)
    return (*first, *given, *wrong, *others)


def remediable_scenarios(library: Library) -> tuple[str, ...]:
    """The scenarios of a fault that a playbook addresses."""
    addressed = {cause for playbook in library.playbooks for cause in playbook.addresses}
    return tuple(name for name in names() if any(truth.cause in addressed for truth in _found(name).causes))


@cache
def _found(name: str) -> Scenario:
    return find(name)


def unattended_scenario(name: str) -> Scenario:
    """The scenario up to its incident, which nobody takes away again. Raises UsageError, DefinitionError."""
    scenario = _found(name)
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
    """`plan` of a standing scenario, its incident going on in slices for as long as a plan may.

    A burst is over after the first of them.
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
