"""A saved plan (`--plan`): its target is named again, and the plan made again, before it is shown or executed.

The file proves nothing: an edit can make its digest anew. Only the command line and the
configuration say which address is changed, and only the playbook says what is changed there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from latdoctor.cli.config_file import TargetSettings
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import ResolvedRequest
from latdoctor.cli.urls import shown_origin
from latdoctor.errors import UsageError
from latdoctor.remediation.plan_comparison import differences, modified_resource
from latdoctor.remediation.planner import Plan
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.target import Target, TargetKind, canonical_url
from latdoctor.sanitize import clean

_SHOWN = 5  # differing fields in a message


def address_named_again(
    target: Target, admin: Sequence[str], settings: TargetSettings, request: ResolvedRequest, sources: SourceOptions
) -> tuple[str, ...]:
    """The address of the plan, where the options or the configuration name it too; none for a process or a workload.

    Raises UsageError where they do not: a token is sent to no address that only a file names.
    """
    if target.kind is TargetKind.PROCESS:
        if sources.pid != target.pid:
            raise _not_named(f"process {target.pid}", f"--pid {target.pid}")
        return ()
    if target.workload is not UNSET:  # that it is the same one in the same cluster is compared with the plan made again
        if not (sources.kube or settings.kube):
            name = clean(str(target.workload), 200)
            raise _not_named(name, f"--kube {name}")
        return ()
    named = tuple(admin) or settings.admin or (() if request.guessed else request.request.servers)
    if canonical_url(target.admin) not in {canonical_url(shown_origin(url)) for url in named}:
        raise _not_named(clean(target.admin, 200), f"--admin {clean(target.admin, 200)}")
    return (target.admin,)


def _not_named(what: str, option: str) -> UsageError:
    return UsageError(
        f"it changes {what}, which neither the options nor the configuration name",
        where="--plan",
        next_step=f"if that is the one to change, name it: {option}",
    )


def saved_plan_refusal(saved: Plan, fresh: Plan, playbook: Playbook) -> Result | None:
    """Why the saved plan is not executed or shown; None where it is the one that would be made now."""
    if (modified := modified_resource(saved, fresh)) and saved.playbook_digest == fresh.playbook_digest:
        reason = f"{clean(modified, 200)} was modified after the plan was made"
        return _refusal(saved, reason, Reason.TARGET_MODIFIED)
    found = differences(saved, fresh)
    if saved.diagnosis and saved.diagnosis.cause not in playbook.addresses:
        found.append(f"because.cause: {clean(saved.diagnosis.cause, 60)}, which the playbook does not address")
    if not found:
        return None
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    reason = "the saved plan is not what playbook, parameters and configuration give now: "
    return _refusal(saved, f"{reason}{'; '.join(found[:_SHOWN])}{more}", Reason.PLAN_OUTDATED)


def _refusal(saved: Plan, reason: str, code: Reason) -> Result:
    return Result(
        "",
        Outcome.REFUSED,
        reason,
        "plan again",
        target=clean(saved.target.name, 200),
        playbook=clean(saved.playbook, 80),
        code=code,
    )
