"""The files that can be named for a look, on the command line or for a configured target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """By the option that names them."""

    metrics: tuple[Path, ...] = ()
    trace: tuple[Path, ...] = ()
    nsys: tuple[Path, ...] = ()
    tensorrt: tuple[Path, ...] = ()
    torch_memory: tuple[Path, ...] = ()
    log: tuple[Path, ...] = ()
    changes: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was named, pages first."""
        captures = (*self.trace, *self.nsys, *self.tensorrt, *self.torch_memory)
        return (*self.metrics, *captures, *self.log, *self.changes)
