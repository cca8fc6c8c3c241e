"""What a playbook's step can do: one module for each kind of resource, all actions listed here."""

from __future__ import annotations

from latdoctor.remedy.actions import (
    acts_endpoint,
    config_endpoint,
    http_json,
    process_affinity,
    process_nice,
    process_signal,
    replica_replace,
)
from latdoctor.remedy.actions.action import Action

ACTIONS: tuple[Action, ...] = (
    config_endpoint.SERVER,
    config_endpoint.ROUTER,
    acts_endpoint.WARM_UP,
    acts_endpoint.RESTART_WORKER,
    acts_endpoint.RELOAD,
    acts_endpoint.SET_DRAINING,
    replica_replace.REPLACE,
    process_affinity.AFFINITY,
    process_nice.NICE,
    process_signal.SIGNAL,
    process_signal.STOP,
    http_json.JSON,
)


def action(name: str) -> Action | None:
    """The action that playbooks call `name`."""
    return next((one for one in ACTIONS if one.name == name), None)
