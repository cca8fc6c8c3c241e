"""Vital signs of frameworks that are texts: what is installed, and where the threads of a process are."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Evidence

_TEXTS = ("stack.gil_holder", "stack.main_thread", "environment.pytorch", "environment.cuda_build", "environment.gpus")
_CUDA_AVAILABLE = "environment.cuda_available"


def framework_texts(evidence: Evidence) -> Iterator[Vital]:
    """The first text of each kind, and that PyTorch cannot use CUDA where this is known."""
    known = evidence.readings_by_signal
    for signal in _TEXTS:
        for one in known.get(signal, ())[:1]:
            yield Vital(signal, one.subject, one.value, str(one.value))
    for one in known.get(_CUDA_AVAILABLE, ()):
        if one.value == 0:
            yield Vital(_CUDA_AVAILABLE, one.subject, one.value, "no")
            return
