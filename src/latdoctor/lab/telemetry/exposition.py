"""Metrics pages in Prometheus's text format, written family by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Labels = Mapping[str, str]


class ExpositionWriter:
    """Gathers the lines of one page; every sample has the `common` labels."""

    def __init__(self, common: Labels) -> None:
        self._common = dict(common)
        self._lines: list[str] = []

    def family(self, name: str, kind: str, message: str) -> None:
        self._lines += [f"# HELP {name} {message}", f"# TYPE {name} {kind}"]

    def sample(self, name: str, value: float, labels: Labels | None = None, *, common: bool = True) -> None:
        chosen = {**(self._common if common else {}), **(labels or {})}
        inside = ",".join(f'{key}="{text}"' for key, text in sorted(chosen.items()))
        self._lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")

    def single(self, name: str, kind: str, message: str, value: float, labels: Labels | None = None) -> None:
        self.family(name, kind, message)
        self.sample(name, value, labels)

    def histogram(self, name: str, message: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """`counts` has one entry for each of `bounds`, and one for values above the last."""
        self.family(name, "histogram", message)
        below = 0
        for bound, count in zip(bounds, counts, strict=False):
            below += count
            self.sample(f"{name}_bucket", float(below), {"le": repr(float(bound))})
        below += counts[-1]
        self.sample(f"{name}_bucket", float(below), {"le": "+Inf"})
        self.sample(f"{name}_count", float(below))
        self.sample(f"{name}_sum", total)

    def text(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()
