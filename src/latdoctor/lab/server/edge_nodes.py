"""The edge nodes' configuration: that of the replicas with a light model, and settings of their own."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from latdoctor.lab.server.config import ServerConfig, patched, with_settings

GROUP = "edge."  # prefix of their settings on the command line
LIGHT_LAYERS, LIGHT_WIDTH = 2, 128  # a sixth of the reference model's time, with answers of its own


class EdgeNodes(Struct, frozen=True):
    """How many edge nodes, and their configuration; `count` 0: no edge tier."""

    count: int = 0
    config: ServerConfig = ServerConfig()


def edge_nodes(count: int, config: ServerConfig, settings: Sequence[str]) -> tuple[EdgeNodes, tuple[str, ...]]:
    """The nodes, from the settings that begin with `edge.`, and the other settings, which are for the replicas too.

    With a registry its version says how large the model is: `edge.model.version=light`. Raises UsageError.
    """
    own = tuple(setting.removeprefix(GROUP) for setting in settings if setting.startswith(GROUP))
    others = tuple(setting for setting in settings if not setting.startswith(GROUP))
    light = {"layers": LIGHT_LAYERS, "width": LIGHT_WIDTH, "compile": False}
    return EdgeNodes(count, with_settings(patched(with_settings(config, others), {"model": light}), own)), others
