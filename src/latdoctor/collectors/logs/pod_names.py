"""The service to which a pod or a container belongs, by the ending of its name. Pure."""

from __future__ import annotations

import re

_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"  # the letters of names that Kubernetes generates
_DEPLOYMENT = re.compile(rf"-(?:{_SAFE}{{6,10}}|[0-9a-f]{{8,10}})-{_SAFE}{{5}}$")
_CONTROLLER = re.compile(rf"-{_SAFE}{{5}}$")  # of a ReplicaSet alone, a DaemonSet, a Job
_INDEX = re.compile(r"[-_]\d{1,4}$")  # of a StatefulSet, or of a container of docker compose
# Two services that differ by a number or a letter are mostly the same server twice (`vllm-a`, `vllm-b`).
_TWIN = re.compile(r"[-_]?(?:(?:gpu|replica|node|worker)[-_]?)?(?<![A-Za-z])(?:\d{1,3}|[a-z]{1,2})$")


def service_of(pod: str) -> str:
    """`chat` of `chat-6f7d8c9b5d-x2x4p`, `chat-0` and `chat-a-1`; empty where no pod is named."""
    for ending in (_DEPLOYMENT, _CONTROLLER):
        if found := ending.search(pod):
            return pod[: found.start()]
    without_index = _INDEX.sub("", pod)
    return _TWIN.sub("", without_index) or without_index
