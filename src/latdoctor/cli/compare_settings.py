"""Two settings of one server for `latdoctor compare URL --set NAME=VALUE`: as it is, and with other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from latdoctor.errors import UsageError

if TYPE_CHECKING:
    from latdoctor.remediation.actions.config_endpoint import ConfigEndpoint
    from latdoctor.remediation.change import Change

TakeTurn = Callable[[int], None]  # puts the setting of this side (0: as it is, 1: with the values) into effect
_TIMEOUT = 10.0  # seconds, of one change


@contextmanager
def two_settings(address: str, values: Mapping[str, str]) -> Iterator[TakeTurn]:
    """Takes turns between the present setting and `values`; in the end the server is as it was.

    Changes are guarded as those of a playbook: a value that another client sets meanwhile is left alone and ends the
    comparison. Raises UsageError for a server whose settings cannot be changed while it runs, or an unknown setting.
    """
    from latdoctor.cli.console import notice_console
    from latdoctor.remediation.change import ChangeState, Deadline, ensure

    resource, change = _planned(address, values)
    undo = resource.manual_command(change.before)
    notice_console().print(
        f"the server's setting is changed for every other run; if this command is killed: {undo}",
        soft_wrap=True,
        highlight=False,
    )

    def turn(side: int) -> None:
        ensure(change, ChangeState.AFTER if side else ChangeState.BEFORE, resource, Deadline.after(_TIMEOUT))

    try:
        yield turn
    finally:
        turn(0)


def _planned(address: str, values: Mapping[str, str]) -> tuple[ConfigEndpoint, Change]:
    """What is changed, and how. Raises UsageError."""
    from latdoctor.cli.remediate_targets import access_again, settings_for
    from latdoctor.remediation.actions.config_endpoint import ROUTER_CONFIG, SERVER_CONFIG
    from latdoctor.remediation.change import Change, Deadline, Field, Undo, read_with_retry
    from latdoctor.remediation.target import Access, Target, TargetKind, detect_kind

    unknown = Target(address, TargetKind.UNKNOWN, admin=address)
    access = access_again(unknown, settings_for(unknown))
    kind = detect_kind(access)
    action = next((one for one in (SERVER_CONFIG, ROUTER_CONFIG) if kind in one.kinds), None)
    if action is None:
        raise UsageError(
            "the settings of this server cannot be changed while it runs",
            where=address,
            next_step="start a second server with the other setting: latdoctor compare URL URL",
        )
    target = Target(address, kind, admin=address)
    where = action.resource_id(target, values)
    resource = action.resource(Access(target, access.token), where)
    state = read_with_retry(resource, Deadline.after(_TIMEOUT))
    wanted = action.desired_values(values, state)
    fields = tuple(Field(name, state.values[name], value) for name, value in wanted.items())
    if all(one.before == one.after for one in fields):
        raise UsageError("the server has these values already", where="--set")
    return resource, Change("compare", action.name, where, fields, Undo.RESTORE, state.version)
