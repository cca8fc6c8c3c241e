"""Objects without what no diagnosis needs: what was last applied (it repeats the object, with its environment), lists
of images, and the fields of managers of objects that clients do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_STATUS = ("images", "volumesInUse", "volumesAttached")  # of nodes
_NOT_EDITED = frozenset({"Pod", "Node", "Event", "ReplicaSet", "ControllerRevision"})


def trimmed(raw: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The object with its `kind`, which items of a list lack."""
    found: dict[str, Any] = {"kind": kind, **raw}
    metadata = dict(found.get("metadata") or {})
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _APPLIED}
    if kind in _NOT_EDITED and "managedFields" in metadata:
        metadata["managedFields"] = [
            {key: value for key, value in one.items() if key != "fieldsV1"} for one in metadata["managedFields"]
        ]
    found["metadata"] = metadata
    if kind == "Node" and isinstance(found.get("status"), Mapping):
        found["status"] = {key: value for key, value in found["status"].items() if key not in _STATUS}
    if kind == "ControllerRevision":
        found.pop("data", None)  # a template; its pods show it
    return found
