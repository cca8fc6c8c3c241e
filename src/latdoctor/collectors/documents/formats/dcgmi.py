"""`dcgmi diag` and `dcgmi health`: which tests failed on which GPU. A test that passed or was skipped shows nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Event, Evidence, Reading, Subject, Value

FAILED, DCGM_ERROR, DRIVER = "gpu.diagnostic_failed", "log.dcgm_error", "gpu.driver_version"
_ROW = re.compile(r"^\s*\|\s*([^|]*?)\s*\|\s*(.*?)\s*\|?\s*$")
_RESULT = re.compile(r"(Fail|Warn|Failure|Warning)\b(?: - (?:GPUs?: )?(.+))?", re.I)
_GPUS = re.compile(r"\d{1,3}")
_GPU = re.compile(r"(?:-> )?(?:GPU(?: ID)?:? ?)?(\d{1,3})")
_OF_GPU = re.compile(r"GPU ?(\d{1,3}): (?:Fail|Warn)", re.I)
_OF_TEXT = re.compile(r"\bGPU (\d{1,3})\b")
_LONGEST = 5000
# The health watches that failed; warnings of a watch, and tests of a diagnostic with such names, are no proof.
_WATCHES = {"memory system": "memory", "pcie system": "pcie"}
_OVERALL = ("overall health", "overall", "warning", "error", "errors", "info", "result", "diagnostic")


def read(section: Section) -> Evidence:
    """The failures in the table. Raises ValueError where it has no row."""
    rows = [(number, row[1], row[2]) for number, line in enumerate(section.text.splitlines()[:_LONGEST])
            if (row := _ROW.match(line))]  # fmt: skip
    if not rows:
        raise ValueError("it has no row")
    events = list(_failures(rows, section))
    found = [Subject(one.subject, "node/local") for one in events if one.subject != "node/local"]
    driver = next((value for _, name, value in rows if name.startswith("Driver Version")), "")
    origin = section.origin(rows[0][0])
    readings = (Reading(DRIVER, "node/local", driver, origin),) if re.match(r"\d{3}\.", driver) else ()
    return Evidence(subjects=(Subject("node/local"), *found), readings=readings, events=tuple(events))


def _failures(rows: list[tuple[int, str, str]], section: Section) -> Iterator[Event]:
    """`PCIe | Fail - GPU: 3` in a diagnostic; below a GPU's `-> 0` `-> PCIe system | Warning` in a report of health."""
    gpu = ""
    for place, (number, name, value) in enumerate(rows):
        bare = name.lstrip("-> ").strip()
        if name.startswith("->") and (named := _GPU.fullmatch(bare)):
            gpu = named[1]
            continue
        result = _RESULT.match(value)
        if not name.strip() or not result or bare.lower().rstrip(":") in _OVERALL or _GPU.fullmatch(bare):
            continue
        severity = "failure" if result[1].lower().startswith("fail") else "warning"
        below = _text_below(rows[place + 1 :])
        listed = (
            _below(rows[place + 1 :])
            or _GPUS.findall(result[2] or "")
            or _OF_TEXT.findall(below)[:1]
            or ([gpu] if gpu else [])
        )
        fields: dict[str, Value] = {"kind": bare, "severity": severity}
        if severity == "failure" and bare.lower() in _WATCHES:
            fields["watch"] = _WATCHES[bare.lower()]
        if below:
            fields["reason"] = below
        for subject in [f"gpu/{one}" for one in listed] or ["node/local"]:
            yield Event(FAILED, subject, section.origin(number), fields, None, f"{bare}: {value}")


def _below(rows: list[tuple[int, str, str]]) -> list[str]:
    """The GPUs that failed in the rows below a result (`GPU3: Fail`), as newer versions list them."""
    found = []
    for _, name, value in rows:
        if name.strip():
            break
        if one := _OF_GPU.match(value):
            found.append(one[1])
    return found


def _text_below(rows: list[tuple[int, str, str]]) -> str:
    """The text in the rows below a result, until the next test."""
    said = []
    for _, name, value in rows[:4]:
        if (
            name.lower().startswith(("warning", "error", "info"))
            or not name.strip("-> ")
            or (value and not name.strip())
        ):
            said.append(value)
        else:
            break
    return " ".join(said)[:200]


FORMAT = TextFormat(
    name="dcgmi",
    title="dcgmi",
    begins=re.compile(r"^\s*\|\s*(?:Diagnostic\s+\|\s*Result|Health Monitor Report|Overall Health)", re.I),
    confirms=re.compile(r"^\s*\|\s*(?!Diagnostic).+\|", re.MULTILINE),
    read=read,
    provides=frozenset({FAILED, DRIVER}),
    repeats=True,
)
