"""torch.compile, and how often it really compiled.

Each shape costs a fraction of a second (eager-graph) to a minute (inductor) of compilation, so batches are padded up to
a few of them. Without warm-up the first request of each shape pays; without the padding nearly every new batch does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch._dynamo.callback import callback_handler

BATCHES = (1, 4, 16, 32)
LENGTHS = (64, 128, 256, 512)

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]

# How many shapes torch may know of one network; by default it gives up after 8, or 256 of all networks together, and
# runs uncompiled without a word.
_SHAPES = 8192


def bucket(batch: int, length: int, longest: int) -> tuple[int, int]:
    """The shape to pad to: the next bucket, beyond the last whole multiples of it; `longest` positions at most."""
    return _up(batch, BATCHES), max(length, min(_up(length, LENGTHS), longest))


def _up(value: int, steps: tuple[int, ...]) -> int:
    return next((step for step in steps if step >= value), -(-value // steps[-1]) * steps[-1])


def inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """torch's own compiler to machine code; on a CPU it needs a C++ compiler."""
    from torch._inductor.compile_fx import compile_fx

    return cast("Callable[..., Any]", compile_fx(graph, inputs))


def eager_graph(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
    """The graph as it was captured, run operator by operator."""
    return graph.forward


BACKENDS: Mapping[Literal["inductor", "eager-graph"], Backend] = {"inductor": inductor, "eager-graph": eager_graph}


class Compilations:
    """Counts compilations and their seconds, whatever the network they were for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.total = 0
        self.seconds = 0.0

    def compiled(self, network: nn.Module, backend: Backend) -> Callable[..., Tensor]:
        """`network`, compiled for each new shape when it first comes."""

        def counting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
            with self._lock:
                self.total += 1
            return backend(graph, inputs)

        made: Callable[..., Tensor] = torch.compile(network, dynamic=False, backend=counting)

        def run(*inputs: Any) -> Tensor:
            limits = torch._dynamo.config  # each thread has its own, so it is set where the work is done
            limits.recompile_limit = limits.accumulated_recompile_limit = _SHAPES
            with self._timed():
                return made(*inputs)

        return run

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Adds up what the calling thread compiles meanwhile: capture, guards and backend."""
        began: list[float] = []

        def begin(_: object) -> None:
            began.append(time.perf_counter())

        def end(_: object) -> None:
            with self._lock:
                self.seconds += time.perf_counter() - began.pop()

        callback_handler.register_start_callback(begin)
        callback_handler.register_end_callback(end)
        try:
            yield
        finally:
            callback_handler.remove_start_callback(begin)
            callback_handler.remove_end_callback(end)
