"""`python -m torch.utils.collect_env`, and what vLLM and others add to it: versions of PyTorch, CUDA, driver and GPUs.

It describes an installation, not what runs on it: nothing is cleared by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latdoctor.collectors.documents.load_result import file_name
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence, Reading, Subject, Value
from latdoctor.sanitize import clean

_PAIR = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 _/().-]{1,60}?)\s*: (.{1,300}?)\s*$")
_GPU = re.compile(r"^\s*GPU (\d{1,3}): (.{1,100}?)\s*$")
_LIBRARY = re.compile(
    r"^\s*\[(?:pip3?|conda|uv)\] (vllm|sglang|triton|transformers|onnxruntime-gpu|tensorrt)(?:==|\s+)(\S{1,60})"
)
_NONE = re.compile(r"(?:N/A|None|Could not collect|not found|No CUDA)\b", re.IGNORECASE)
# The lines that are read, by their keys in lower case.
_TEXTS = {
    "pytorch version": "environment.pytorch",
    "cuda used to build pytorch": "environment.cuda_build",
    "rocm used to build pytorch": "environment.rocm_build",
    "cuda runtime version": "environment.cuda_runtime",
    "nvidia driver version": "gpu.driver_version",
    "python version": "environment.python",
    "vllm version": "environment.vllm",
}
_FLAGS = {"is cuda available": "environment.cuda_available"}
_LIBRARIES = "environment.library"
_GPUS = "environment.gpus"


def read(section: Section) -> Evidence:
    """The versions in the text. Raises ValueError where it has none."""
    subject = f"node/{file_name(section)}"
    readings = tuple(_readings(section, subject))
    if not readings:
        raise ValueError("it states no version")
    return Evidence((Subject(subject),), readings)


def _readings(section: Section, subject: str) -> Iterator[Reading]:
    known: set[str] = set()
    gpus: list[tuple[int, str]] = []
    for number, line in enumerate(section.text.splitlines()[:5000]):
        for signal, value, labels in _stated(line):
            if (key := f"{signal}{labels}") not in known:
                known.add(key)
                yield Reading(signal, subject, value, section.origin(number), labels=labels)
        if (found := _GPU.match(line)) and len(gpus) < 64:
            gpus.append((number, clean(found[2], 100)))
    if gpus:
        yield Reading(_GPUS, subject, _listed([name for _, name in gpus]), section.origin(gpus[0][0]))


def _stated(line: str) -> Iterator[tuple[str, Value, tuple[tuple[str, str], ...]]]:
    if found := _LIBRARY.match(line):
        yield _LIBRARIES, clean(found[2], 60), (("library", found[1]),)
        return
    pair = _PAIR.match(line)
    key = pair[1].lower() if pair else ""
    if pair and key in _FLAGS and pair[2] in ("True", "False"):
        yield _FLAGS[key], float(pair[2] == "True"), ()
    elif pair and key in _TEXTS and not _NONE.match(pair[2]):
        yield _TEXTS[key], clean(pair[2], 200), ()


def _listed(names: Sequence[str]) -> str:
    """`8 x NVIDIA H100, 1 x NVIDIA T4`."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


FORMAT = TextFormat(
    name="torch-environment",
    title="torch.utils.collect_env",
    begins=re.compile(r"^\s*(?:Collecting environment information|PyTorch version\s*: \S)"),
    read=read,
    provides=frozenset((*_TEXTS.values(), *_FLAGS.values(), _LIBRARIES, _GPUS)),
    confirms=re.compile(r"^\s*PyTorch version\s*: ", re.MULTILINE),
    repeats=True,
    in_logs=True,
)
