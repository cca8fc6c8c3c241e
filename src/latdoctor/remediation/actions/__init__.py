"""What a playbook's step can do: one module for each kind of resource, all actions listed here."""

from __future__ import annotations

from latdoctor.remediation.actions import (
    config_endpoint,
    http_json,
    process_scheduling,
    process_signal,
    replica_replace,
    server_operations,
)
from latdoctor.remediation.actions.base import Action

ACTIONS: tuple[Action, ...] = (
    config_endpoint.SERVER,
    config_endpoint.ROUTER,
    server_operations.WARM_UP,
    server_operations.RESTART_WORKER,
    server_operations.RELOAD,
    server_operations.SET_DRAINING,
    replica_replace.REPLACE,
    process_scheduling.AFFINITY,
    process_scheduling.NICE,
    process_signal.SIGNAL,
    process_signal.STOP,
    http_json.JSON,
)


def action(name: str) -> Action | None:
    """The action that playbooks call `name`."""
    return next((one for one in ACTIONS if one.name == name), None)
