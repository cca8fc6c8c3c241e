"""The intent model as the engine sees it: a batch of inputs in, answers out, every knob of its settings live.

`forward` is meant for one worker thread; `apply` may be called from any thread and takes effect with the next forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from latdoctor.errors import UsageError
from latdoctor.lab.server.config import ModelSettings
from latdoctor.lab.server.intent_request import ModelInput
from latdoctor.lab.server.memory.pool_interface import MemoryPool
from latdoctor.lab.server.network import (
    BACKENDS,
    BATCHES,
    FRAME_WIDTH,
    HEADS,
    LENGTHS,
    POSITIONS,
    Backend,
    Compilations,
    Encoder,
    Precision,
    bucket,
    convert_precision,
    draw_weights,
    layers_of,
    resolve_precision,
)
from latdoctor.lab.server.standby_model import Predictions
from latdoctor.lab.server.versions.model_weights import VerifiedWeights, load_weights
from latdoctor.lab.server.versions.network_weights import loaded_encoder
from latdoctor.load.text_tokens import VOCABULARY

INTENTS = (
    "order-status",
    "cancel-order",
    "change-address",
    "delivery-late",
    "return-item",
    "refund-status",
    "exchange-item",
    "invoice",
    "payment-failed",
    "promotion",
    "price-question",
    "stock-question",
    "account-locked",
    "warranty",
    "complaint",
    "talk-to-a-person",
)


LONG_TOKENS = 200  # from here on an input is long, and may use the memory kept for long ones
STANDBY_LAYERS, STANDBY_WIDTH = 2, 128


class PreparedNetwork(Struct, frozen=True):
    """A network ready to run, and what it was made from. Replaced as a whole, so that a forward sees only one."""

    settings: ModelSettings
    precision: Precision
    encoder: Any  # Encoder, possibly with quantised layers in place of its own
    run: Callable[..., Tensor]
    checksum: str
    parameters: int
    weights: VerifiedWeights | None = None  # of a registered version, which the network maps

    @property
    def width(self) -> int:
        return int(self.encoder.tokens.weight.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16" else torch.float32


class IntentModel:
    """A version of the model in memory, and the pool that its batches are padded into."""

    def __init__(
        self, settings: ModelSettings, pool: MemoryPool, *, positions: int = POSITIONS, compiler: Backend | None = None
    ) -> None:
        """`compiler`: another one than the settings name."""
        self.pool = pool
        self.compilations = Compilations()
        self._compiler = compiler or BACKENDS[settings.compiler]
        self._positions = positions
        self._device = "cuda" if pool.backend == "cuda" else "cpu"
        self._now = self._prepared(settings)

    @property
    def settings(self) -> ModelSettings:
        return self._now.settings

    @property
    def precision(self) -> Precision:
        """What it is computed in: `auto` resolved."""
        return self._now.precision

    @property
    def checksum(self) -> str:
        return self._now.checksum

    @property
    def parameters(self) -> int:
        return self._now.parameters

    @property
    def longest(self) -> int:
        """The longest input in tokens or frames."""
        return self._positions

    def standby(self) -> IntentModel:
        """The light model of the same version over the same pool: faster, and with answers of its own.

        It is drawn, not loaded: the registry has the main model of a version only.
        """
        light = msgspec.structs.replace(
            self.settings, layers=STANDBY_LAYERS, width=STANDBY_WIDTH, compile=False, registry=""
        )
        return IntentModel(light, self.pool, positions=self._positions)

    def apply(self, settings: ModelSettings) -> None:
        """Takes new settings; a new version or precision is made ready here, beside the one in use."""
        if _network(settings) != _network(self.settings):
            self._now = self._prepared(settings)
        else:
            self._now = msgspec.structs.replace(self._now, settings=settings)

    def rebuild(self) -> None:
        """Draws and converts the network again, as at the start; what was compiled is compiled again."""
        self._now = self._prepared(self.settings)

    def warm_up(self) -> None:
        """Runs every kind of batch once, on the worker thread; with `compile` that compiles every bucket (minutes)."""
        shapes = [(1, 32), (8, 48), (1, self._positions)]
        if self.settings.compile:
            lengths = [length for length in LENGTHS if length <= self._positions]
            shapes = [(batch, length) for batch in BATCHES for length in lengths]
        frames = np.zeros((16, FRAME_WIDTH), dtype=np.float32)
        for batch, length in shapes:
            self.forward([[1] * length] * batch)
            self.forward([[1] * length] * (batch - 1) + [[1] * (length - 1)])  # with a mask: another graph
        self.forward([frames])

    def forward(self, batch: Sequence[ModelInput]) -> Predictions:
        """Predictions for `batch`. Raises ValueError for an input that is empty, too long or not in the vocabulary, and
        OutOfMemory where the pool has no room for the padded batch."""
        now = self._now
        lengths = [len(one) for one in batch]
        if not lengths or not 1 <= min(lengths) <= max(lengths) <= self._positions:
            raise ValueError(f"a batch has inputs of 1 to {self._positions} tokens, not of {lengths or 'none'}")
        self.pool.compact_if_due()
        if torch.get_num_threads() != now.settings.threads:
            torch.set_num_threads(now.settings.threads)  # of this thread: OpenMP keeps it for each one
        rows, longest = len(batch), max(lengths)
        if now.settings.compile and now.settings.compile_buckets:
            rows, longest = bucket(rows, longest, self._positions)
        with self.pool.watch(), torch.inference_mode():
            logits = self._logits(now, batch, lengths, (rows, longest))
            scores, intents = logits.softmax(-1).max(-1)
        return Predictions(
            intents=tuple(intents.tolist()),
            scores=tuple(scores.tolist()),
            checksum=now.checksum,
            padded_tokens=rows * longest,
            version=now.settings.version,
        )

    def _logits(
        self, now: PreparedNetwork, batch: Sequence[ModelInput], lengths: list[int], padded: tuple[int, int]
    ) -> Tensor:
        rows, longest = padded
        long = longest > LONG_TOKENS
        sizes = torch.tensor([*lengths, *[longest] * (rows - len(lengths))], device=self._device)
        mask = None
        if min(lengths) < longest:
            mask = (torch.arange(longest, device=self._device) < sizes[:, None])[:, None, None, :]
        with self.pool.tensor((rows, longest, now.width), now.dtype, long=long) as states:
            self._embed(now, batch, states, long=long)
            logits: Tensor = now.run(states, sizes, mask)
            return logits[: len(batch)].float()

    def _embed(self, now: PreparedNetwork, batch: Sequence[ModelInput], states: Tensor, *, long: bool) -> None:
        """Writes tokens and frames, padded with zeros, plus positions, into `states`."""
        rows, longest, width = states.shape
        ids = np.zeros((rows, longest), dtype=np.int64)
        audio = []
        for row, one in enumerate(batch):
            if isinstance(one, np.ndarray):
                audio.append(row)
            else:
                ids[row, : len(one)] = one
        if ids.min() < 0 or ids.max() >= VOCABULARY:
            raise ValueError(f"token ids are 0 to {VOCABULARY - 1}")
        encoder: Encoder = now.encoder
        with self.pool.tensor((rows, longest), torch.int64, long=long) as held:
            held.copy_(torch.from_numpy(ids))
            torch.index_select(encoder.tokens.weight, 0, held.view(-1), out=states.view(-1, width))
        for row in audio:
            frames = torch.from_numpy(batch[row])
            if frames.dim() != 2 or frames.shape[1] != FRAME_WIDTH:
                raise ValueError(f"audio is (frames, {FRAME_WIDTH}), not {tuple(frames.shape)}")
            states[row, : len(frames)] = encoder.frames(frames.to(self._device, now.dtype))
        states += encoder.positions.weight[:longest]

    def _prepared(self, settings: ModelSettings) -> PreparedNetwork:
        """Raises UsageError, and ModelRefused for a version that the registry cannot give."""
        precision = resolve_precision(settings.precision, self._device)
        if settings.registry:
            weights = load_weights(Path(settings.registry), settings.version, settings.weights)
            encoder = loaded_encoder(
                weights, intents=len(INTENTS), positions=self._positions, attention=settings.attention
            )
            checksum = weights.manifest.sha256[:16]
        else:
            weights = None
            encoder, checksum = self._drawn(settings)
        parameters = sum(one.numel() for one in encoder.parameters())
        network = convert_precision(encoder.eval(), precision).to(self._device)
        return PreparedNetwork(
            settings=settings,
            precision=precision,
            encoder=network,
            run=self.compilations.compiled(network, self._compiler) if settings.compile else network,
            checksum=checksum,
            parameters=parameters,
            weights=weights,
        )

    def _drawn(self, settings: ModelSettings) -> tuple[Encoder, str]:
        """A network whose weights are drawn by the seed of its version, and their digest."""
        if settings.width % HEADS:
            raise UsageError(f"model.width is {settings.width}, not a multiple of {HEADS}")
        encoder = Encoder(
            layers=layers_of(settings.version, settings.layers),
            width=settings.width,
            intents=len(INTENTS),
            positions=self._positions,
            attention=settings.attention,
        )
        return encoder, draw_weights(encoder, settings.version)


def _network(settings: ModelSettings) -> ModelSettings:
    """`settings` without those that need no other network: what was compiled stays good."""
    plain = ModelSettings()
    return msgspec.structs.replace(
        settings, threads=plain.threads, compile_buckets=plain.compile_buckets, warm_up=plain.warm_up
    )
