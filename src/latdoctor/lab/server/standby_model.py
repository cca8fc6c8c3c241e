"""The main model and its light standby; which of them computes the next batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter
from typing import Protocol, Self

from msgspec import Struct

from latdoctor.lab.server.config import ModelSettings
from latdoctor.lab.server.errors import RequestRefused
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.worker import BatchResult


class Predictions(Struct, frozen=True):
    """One answer for each input of a batch, in its order.

    `intents` are indices of the server's intents, `scores` their probabilities (0..1). `padded_tokens` is what was
    computed: batch × padded length, the compiler's buckets included. `checksum` identifies the weights, `version` is
    that of the model: a version that is switched during a computation does not label its answers.
    """

    intents: Sequence[int]
    scores: Sequence[float]
    padded_tokens: int
    checksum: str = ""
    version: str = ""


class ModelLoad(Struct, frozen=True):
    """A version that was loaded while the server ran, or refused. `seconds` until it was ready, or refused."""

    seconds: float
    refused: str = ""  # the code; empty: it is in service


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
        """Loads or draws the network of its settings again, beside the one in use."""

    def standby(self) -> Self: ...

    def warm_up(self) -> None: ...


class ServingModels:
    """The main model and its light standby; one of them computes each batch, chosen under the shared lock."""

    def __init__(
        self,
        main: Model,
        wants_standby: Callable[[], bool],
        shared: AbstractContextManager[None],
        on_load: Callable[[ModelLoad], None] = lambda _: None,
    ) -> None:
        self.main = main
        self._on_load = on_load
        self._wants_standby = wants_standby
        self._shared = shared
        self._light: Model | None = None
        self.version_changes = 0  # since the start

    def prepare(self, settings: ModelSettings, *, standby: bool) -> None:
        """Prepares the models for `settings`. Takes seconds; call it off the worker and the event loop.

        Raises UsageError for what this machine cannot do, RequestRefused for a version that the registry cannot give;
        then nothing has changed.
        """
        renewed, other = settings != self.main.settings, settings.version != self.main.settings.version
        with self._counted() if other else nullcontext():
            self.main.apply(settings)
        self.version_changes += other
        if not standby:
            self._light = None
        elif renewed or self._light is None:
            self._light = self.main.standby()

    def rebuild(self) -> str:
        """Loads or draws both again; the checksum of the main one. Called like `prepare`, and raises the same."""
        with self._counted():
            self.main.rebuild()
        if self._light is not None:
            self._light = self.main.standby()
        return self.main.checksum

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Reports how long the context took, and a refusal."""
        began = perf_counter()
        try:
            yield
        except RequestRefused as refused:
            self._on_load(ModelLoad(perf_counter() - began, refused.reason))
            raise
        self._on_load(ModelLoad(perf_counter() - began))

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
        answers = model.forward(inputs)
        return BatchResult(
            answers.intents, answers.scores, answers.version, answers.padded_tokens, standby=light is not None
        )
