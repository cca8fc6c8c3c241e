"""The network's weights as a safetensors file: the encoder of a file, and the file of a drawn encoder."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from latdoctor.lab.server.network import FRAME_WIDTH, HEADS, Attention, Encoder, draw_weights, layers_of
from latdoctor.lab.server.versions.model_registry import ModelRefused, RefusalCode
from latdoctor.lab.server.versions.model_weights import VerifiedWeights
from latdoctor.load.text_tokens import VOCABULARY

ARCHITECTURE = "intent-encoder"
_LAYER = re.compile(r"layers\.(\d{1,3})\.")
_DTYPES = (torch.float32, torch.bfloat16)


def drawn_weights(version: str, *, layers: int, width: int, intents: int, positions: int, dtype: torch.dtype) -> bytes:
    """The file of a network whose weights are drawn by the seed of `version`; the same on every machine."""
    from safetensors.torch import save

    encoder = Encoder(layers=layers_of(version, layers), width=width, intents=intents, positions=positions)
    draw_weights(encoder, version)
    return bytes(save({name: weights.to(dtype).contiguous() for name, weights in encoder.state_dict().items()}))


def loaded_encoder(weights: VerifiedWeights, *, intents: int, positions: int, attention: Attention) -> Encoder:
    """The network of these weights, which it maps without copying. Raises ModelRefused for another network's."""
    version = weights.manifest.version
    if weights.manifest.architecture != ARCHITECTURE:
        raise _wrong(version, f"their architecture is {weights.manifest.architecture!r}, not {ARCHITECTURE}")
    state = _tensors(weights)
    width, rows = _width_and_positions(version, state)
    if rows < positions:
        raise _wrong(version, f"they have {rows} positions, and this server takes inputs of {positions}")
    layers = len({match[1] for name in state if (match := _LAYER.match(name))})
    with torch.device("meta"):
        encoder = Encoder(layers=layers, width=width, intents=intents, positions=rows, attention=attention)
    try:
        encoder.load_state_dict(state, assign=True)
    except RuntimeError as error:  # names or shapes that are not the network's
        raise _wrong(version, str(error).partition("\n")[2].strip()[:200] or "other names or shapes") from error
    return encoder


def _tensors(weights: VerifiedWeights) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights.path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError) as error:
        detail = f"the weights of version {weights.manifest.version} are no safetensors file: {str(error)[:200]}"
        raise ModelRefused(RefusalCode.WRONG_FORMAT, detail) from error


def _width_and_positions(version: str, state: dict[str, Tensor]) -> tuple[int, int]:
    """The width of a state, and the longest input. Raises ModelRefused."""
    tokens, positions, frames = (state.get(f"{name}.weight") for name in ("tokens", "positions", "frames"))
    if tokens is None or positions is None or frames is None:
        raise _wrong(version, "tokens, positions or frames are missing")
    if (
        tokens.dim() != 2
        or len(tokens) != VOCABULARY
        or positions.dim() != 2
        or tuple(frames.shape[1:]) != (FRAME_WIDTH,)
    ):
        raise _wrong(version, f"the embeddings are not of {VOCABULARY} tokens and {FRAME_WIDTH} features")
    if tokens.shape[1] % HEADS:
        raise _wrong(version, f"the width {tokens.shape[1]} is not a multiple of {HEADS}")
    if len({weights.dtype for weights in state.values()}) != 1 or tokens.dtype not in _DTYPES:
        raise _wrong(version, f"the numbers are not all of one of {', '.join(map(str, _DTYPES))}")
    return tokens.shape[1], len(positions)


def _wrong(version: str, detail: str) -> ModelRefused:
    return ModelRefused(RefusalCode.WRONG_TENSORS, f"the weights of version {version} do not fit: {detail}")
