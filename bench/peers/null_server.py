"""The reference server as it is, with a model that answers at once: what remains is the server's own cost.

python -m bench.peers.null_server --port N
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from msgspec import Struct

from latdoctor.lab.server import serve as lifecycle
from latdoctor.lab.server.config import ModelSettings, ServerConfig
from latdoctor.lab.server.inference_server import ModelBackend
from latdoctor.lab.server.intent_request import ModelInput


class Nothing(Struct, frozen=True):
    """No thought went into these answers."""

    intents: Sequence[int]
    scores: Sequence[float]
    padded_tokens: int


class NullModel:
    """Looks like the intent model and computes nothing."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.precision = "none"
        self.checksum = "none"

    def forward(self, batch: Sequence[ModelInput]) -> Nothing:
        return Nothing([0] * len(batch), [0.0] * len(batch), len(batch) * max(map(len, batch)))

    def apply(self, settings: ModelSettings) -> None:
        self.settings = settings

    def rebuild(self) -> None:
        """There is nothing to build."""

    def standby(self) -> NullModel:
        return self

    def warm_up(self) -> None:
        """There is nothing to warm."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    real = lifecycle.torch_backend

    def null_backend(config: ServerConfig) -> ModelBackend:
        return dataclasses.replace(real(config), model=NullModel(config.model))

    lifecycle.torch_backend = null_backend
    lifecycle.serve(lifecycle.ServeOptions(port=port))


if __name__ == "__main__":
    main()
