"""The fault agent: real disturbances inside a server that was started with `--fault-agent`.

    PUT /faults/NAME {"strength": 1.0, "lifetime": 30}               starts a disturbance, or starts it anew
    PUT /faults/knobs-1 {"knobs": {"group": {…}}, "lifetime": 30}    turns live knobs; any name that begins so
    DELETE /faults/NAME                                               ends it
    GET /faults                                                       those at work, and what is left of their time

Each ends by itself after its lifetime. None of them shows on the metrics page, except by what it does.
"""

from __future__ import annotations

from latdoctor.lab.faults.agent.registry import DISTURBANCES, attach

__all__ = ["DISTURBANCES", "attach"]
