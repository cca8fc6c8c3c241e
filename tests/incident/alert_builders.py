"""Alerts and notifications for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from latdoctor.incident.alertmanager import parse
from latdoctor.incident.events import AlertsReceived

BEGAN = "2026-11-22T02:49:10Z"


def alert(number: int, status: str = "firing", *, starts: str = BEGAN, name: str = "LatencyHigh") -> dict[str, Any]:
    return {
        "status": status,
        "labels": {"alertname": name, "instance": f"host-{number}:8002"},
        "annotations": {"summary": f"host-{number} is slow"},
        "startsAt": starts,
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else "2026-11-22T03:09:10Z",
        "fingerprint": f"{number:016x}",
    }


def notification(alerts: Iterable[dict[str, Any]], *, key: str = "{}:{}", truncated: int = 0) -> bytes:
    told = {"version": "4", "groupKey": key, "receiver": "latdoctor", "truncatedAlerts": truncated}
    return json.dumps({**told, "alerts": list(alerts)}).encode()


def alerted(*alerts: dict[str, Any], key: str = "{}:{}", truncated: int = 0) -> AlertsReceived:
    return parse(notification(alerts, key=key, truncated=truncated))
