"""What a playbook's step can do: one module for each action, all of them listed here."""

from __future__ import annotations

from latdoctor.remedy.actions import config_endpoint
from latdoctor.remedy.actions.action import Action

ACTIONS: tuple[Action, ...] = (config_endpoint.SERVER, config_endpoint.ROUTER)


def action(name: str) -> Action | None:
    """The action that playbooks call `name`."""
    return next((one for one in ACTIONS if one.name == name), None)
