"""The main model and its light standby; which of them computes the next batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, Self

from msgspec import Struct

from latdoctor.lab.server.config import ModelSettings
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.worker import BatchResult


class Predictions(Struct, frozen=True):
    """One answer for each input of a batch, in its order.

    `intents` are indices of the server's intents, `scores` their probabilities (0..1). `padded_tokens` is what was
    computed: batch × padded length, the compiler's buckets included. `checksum` identifies the weights.
    """

    intents: Sequence[int]
    scores: Sequence[float]
    padded_tokens: int
    checksum: str = ""


class Model(Protocol):
    """A version in memory. `forward` runs on the worker; `apply`, `rebuild` and `standby` take seconds, elsewhere."""

    @property
    def settings(self) -> ModelSettings: ...

    @property
    def precision(self) -> str:
        """What it is computed in."""

    @property
    def checksum(self) -> str:
        """Of its weights."""

    def forward(self, batch: Sequence[ModelInput]) -> Predictions: ...

    def apply(self, settings: ModelSettings) -> None: ...

    def rebuild(self) -> None:
        """Builds the network of its settings again, beside the one in use."""

    def standby(self) -> Self: ...

    def warm_up(self) -> None: ...


class ServingModels:
    """The main model and its light standby; one of them computes each batch, chosen under the shared lock."""

    def __init__(self, main: Model, wants_standby: Callable[[], bool], shared: AbstractContextManager[None]) -> None:
        self.main = main
        self._wants_standby = wants_standby
        self._shared = shared
        self._light: Model | None = None
        self.version_changes = 0  # since the start

    def prepare(self, settings: ModelSettings, *, standby: bool) -> None:
        """Prepares the models for `settings`. Takes seconds; call it off the worker and the event loop.

        Raises UsageError for what this machine cannot do; then nothing has changed.
        """
        renewed, version = settings != self.main.settings, self.main.settings.version
        self.main.apply(settings)
        self.version_changes += settings.version != version
        if not standby:
            self._light = None
        elif renewed or self._light is None:
            self._light = self.main.standby()

    def rebuild(self) -> str:
        """Builds both again from their settings; the checksum of the main one. Called like `prepare`."""
        self.main.rebuild()
        if self._light is not None:
            self._light = self.main.standby()
        return self.main.checksum

    def warm_up(self) -> None:
        """Every kind of batch once; on the worker's thread."""
        self.main.warm_up()
        if self._light is not None:
            self._light.warm_up()

    def compute(self, inputs: Sequence[ModelInput]) -> BatchResult:
        with self._shared:
            use_standby = self._wants_standby()
        light = self._light if use_standby else None
        model = light or self.main
        version = model.settings.version
        answers = model.forward(inputs)
        return BatchResult(answers.intents, answers.scores, version, answers.padded_tokens, standby=light is not None)
