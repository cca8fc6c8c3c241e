"""What the registers in the lines of NVLink 5 (Xid 144 to 150) say, as data in `xid_nvlink.yaml`.

    NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 14 (0x00000004 0x00000040 …)

The first register names unit and reason, in two layouts: one before driver R575 and one from then on. The second is the
error's status. By both NVIDIA advises anything from nothing at all to a reset of the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latdoctor.collect.logs import xid
from latdoctor.collect.logs.xid import Bucket
from latdoctor.errors import DefinitionError, Problem
from latdoctor.yamlfile import Fields, Node, load

SEVERITIES = ("non-fatal", "link-fatal", "fatal")
_FILE = Path(__file__).parent / "xid_nvlink.yaml"
_REGISTERS = re.compile(r"\(0x([0-9a-fA-F]{1,8}) 0x([0-9a-fA-F]{1,8})\b")
_MASK = re.compile(r"[01-]{32}")
_ANY = "any"
# What must be restarted, the least first: of several errors in one line the worst decides.
_NEEDS = ("none", "decide", "application", "gpu", "node")


@dataclass(frozen=True, slots=True)
class Mask:
    """Bits of a register: those of `care` must be as in `bits`."""

    care: int
    bits: int

    @classmethod
    def of(cls, text: str) -> Mask:
        """Raises ValueError for anything but 32 signs of `01-`."""
        if not _MASK.fullmatch(text):
            raise ValueError(f"{text!r} is no mask of 32 bits")
        return cls(int(re.sub("[01]", "1", text).replace("-", "0"), 2), int(text.replace("-", "0"), 2))

    def fits(self, register: int) -> bool:
        return register & self.care == self.bits


@dataclass(frozen=True, slots=True)
class Row:
    """One decision: for these values of the first register, and this second one (None: any)."""

    units: tuple[str, ...]
    info: tuple[Mask, ...]
    status: int | None
    action: Bucket
    follow_up: Bucket
    severity: str

    def fits(self, info: int, status: int) -> bool:
        return self.status in (None, status) and any(mask.fits(info) for mask in self.info)

    def is_among(self, info: int, status: int) -> bool:
        """Whether its status is one of the bits that are set."""
        bit = self.status or 0
        return bit.bit_count() == 1 and bool(status & bit) and any(mask.fits(info) for mask in self.info)


@cache
def table() -> Mapping[int, tuple[Row, ...]]:
    """The rows by Xid. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_FILE), problems, "the table of NVLink 5")
    known = {row.name: row for one in xid.catalogue().values() for row in (one.action, one.follow_up) if row.name}
    known |= {name: xid.bucket(name, node, problems) for name, node in root.items("buckets")}
    found: dict[int, tuple[Row, ...]] = {}
    for code, groups in root.items("codes"):
        listed = groups.value if isinstance(groups.value, tuple) else ()
        found[int(code)] = tuple(row for group in listed for row in _rows(group, known, problems))
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def _rows(node: Node, known: Mapping[str, Bucket], problems: list[Problem]) -> Iterator[Row]:
    fields = Fields(node, problems, "a unit")
    units, masks = fields.texts("units"), []
    for text in fields.texts("info"):
        try:
            masks.append(Mask.of(text))
        except ValueError as error:
            fields.problem(fields.where, str(error))
    errors = fields.node("errors", required=True)
    fields.finish()
    for one in errors.value if errors and isinstance(errors.value, tuple) else ():
        yield from _decisions(Fields(one, problems, "an error"), units, tuple(masks), known)


def _decisions(
    fields: Fields, units: tuple[str, ...], masks: tuple[Mask, ...], known: Mapping[str, Bucket]
) -> Iterator[Row]:
    names = tuple(known)
    action = known[fields.choice("action", names, "IGNORE", required=True)]
    follow_up = known[fields.choice("follow_up", names, "IGNORE", required=True)]
    severity = fields.choice("severity", SEVERITIES, SEVERITIES[0], required=True)
    for status in fields.texts("status"):
        yield Row(units, masks, None if status == _ANY else int(status, 16), action, follow_up, severity)
    fields.finish()


def decode(code: int, detail: str) -> Row | None:
    """What the registers in a line say: the row of its status, else the worst of those whose bits are set.

    None where the line holds no registers, or such as the table does not know.
    """
    registers = _REGISTERS.search(detail) if code in table() else None
    if registers is None:
        return None
    info, status = int(registers[1], 16), int(registers[2], 16)
    rows = table()[code]
    fitting = [row for row in rows if row.fits(info, status)] or [row for row in rows if row.is_among(info, status)]
    return max(fitting, key=lambda row: (_NEEDS.index(row.action.needs), SEVERITIES.index(row.severity)), default=None)
