"""Tables of error codes in YAML: CUDA errors, Xids, DCGM errors, and the NVLink 5 registers of Xids 144 to 150.

    NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 14 (0x00000004 0x00000040 …)

The first register encodes unit and reason, in one layout before driver R575 and another from then on. The second is the
error's status. Depending on both, NVIDIA recommends anything from no action to a GPU reset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from latdoctor.errors import DefinitionError, Problem
from latdoctor.evidence.model import Value
from latdoctor.strict_yaml import Fields, Node, load, one_of

_CUDA_FILE = Path(__file__).parent / "cuda_errors.yaml"


@dataclass(frozen=True, slots=True)
class CudaCode:
    """`sticky` destroys the process's context, `driver` means that driver and toolkit do not match."""

    code: int
    name: str
    driver_name: str
    text: str
    sticky: bool
    driver: bool


@cache
def cuda_codes() -> Mapping[int, CudaCode]:
    """Every catalogued code. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = load(_CUDA_FILE)
    found: dict[int, CudaCode] = {}
    for key, node in (root.value if isinstance(root.value, dict) else {}).items():
        fields = Fields(node, problems, f"CUDA error {key}")
        found[int(key)] = CudaCode(
            code=int(key),
            name=fields.text("name", required=True),
            driver_name=fields.text("driver_name"),
            text=fields.text("text", required=True),
            sticky=fields.flag("sticky"),
            driver=fields.flag("driver"),
        )
        fields.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def by_name(name: str) -> CudaCode | None:
    """The code named `name` by the runtime (`cudaErrorIllegalAddress`) or the driver API (`CUDA_ERROR_…`)."""
    return _names().get(name)


def by_text(text: str) -> CudaCode | None:
    """The code whose message is in `text`; the longest one if there are several."""
    found = _texts().search(text)
    return _by_lower_text()[found[0].lower()] if found else None


@cache
def _names() -> Mapping[str, CudaCode]:
    return {name: row for row in cuda_codes().values() for name in (row.name, row.driver_name) if name}


@cache
def _by_lower_text() -> Mapping[str, CudaCode]:
    return {row.text.lower(): row for row in cuda_codes().values()}


@cache
def _texts() -> re.Pattern[str]:
    longest_first = sorted(_by_lower_text(), key=len, reverse=True)
    return re.compile("|".join(re.escape(text) for text in longest_first), re.IGNORECASE)


NEEDS = ("none", "application", "gpu", "node", "decide")
NO_ACTION = "NVIDIA names no action"

_XID_FILE = Path(__file__).parent / "xid.yaml"


@dataclass(frozen=True, slots=True)
class ResolutionBucket:
    """One of NVIDIA's resolution buckets: its name, the action in plain words, and what must be restarted."""

    name: str
    does: str
    needs: str  # one of NEEDS


@dataclass(frozen=True, slots=True)
class XidCode:
    """One row of the catalogue. `action` is immediate, `follow_up` is for finding the reason later."""

    code: int
    means: str
    action: ResolutionBucket
    follow_up: ResolutionBucket
    secondary: bool  # the consequence of another fault, never the root if another Xid is near

    @property
    def fatal(self) -> bool:
        """Whether the GPU or its machine must be reset or restarted."""
        return self.action.needs in ("gpu", "node")

    @property
    def fields(self) -> dict[str, Value]:
        """What an event of this code says."""
        return {
            "code": float(self.code),
            "meaning": self.means,
            "bucket": self.action.name,
            "action": self.action.does,
            "follow_up": self.follow_up.does,
            "needs": self.action.needs,
            "secondary": float(self.secondary),
            "fatal": float(self.fatal),
        }


_NO_BUCKET = ResolutionBucket("", NO_ACTION, "none")


@cache
def xid_catalogue() -> Mapping[int, XidCode]:
    """Every known code. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_XID_FILE), problems, "the Xid table")
    buckets = {"": _NO_BUCKET, **{name: parse_bucket(name, node, problems) for name, node in root.items("buckets")}}
    found: dict[int, XidCode] = {}
    support = buckets.get("CONTACT_SUPPORT", _NO_BUCKET)
    for text in root.texts("unused"):
        found[int(text)] = XidCode(int(text), "not used on current GPUs", support, _NO_BUCKET, False)
    for text, node in root.items("codes"):
        if int(text) in found:
            problems.append(Problem(node.where, f"the code {text} is defined twice"))
        found[int(text)] = _code(int(text), Fields(node, problems, f"Xid {text}"), buckets)
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def lookup_xid(code: int) -> XidCode:
    """The row of `code`; a placeholder row for codes that are not in NVIDIA's catalogue."""
    unknown = XidCode(code, "a code that is not in NVIDIA's catalogue", _NO_BUCKET, _NO_BUCKET, False)
    return xid_catalogue().get(code, unknown)


def parse_bucket(name: str, node: Node, problems: list[Problem]) -> ResolutionBucket:
    """Parse a row of `buckets`; its errors are added to `problems`."""
    fields = Fields(node, problems, f"bucket {name}")
    parsed = ResolutionBucket(
        name, fields.text("does", required=True), fields.choice("needs", NEEDS, "none", required=True)
    )
    fields.finish()
    return parsed


def _code(code: int, fields: Fields, buckets: Mapping[str, ResolutionBucket]) -> XidCode:
    names = tuple(buckets)
    row = XidCode(
        code=code,
        means=fields.text("means", required=True),
        action=buckets[fields.scalar("action", lambda text: one_of(text, names), "")],
        follow_up=buckets[fields.scalar("follow_up", lambda text: one_of(text, names), "")],
        secondary=fields.flag("secondary"),
    )
    fields.finish()
    return row


PREFIX = "DCGM_FR_"
_DCGM_FILE = Path(__file__).parent / "dcgm_errors.yaml"


@dataclass(frozen=True, slots=True)
class DcgmAction:
    """The immediate action, what must be restarted for it, and the follow-up."""

    name: str
    does: str
    needs: str  # one of NEEDS
    follow_up: str


@dataclass(frozen=True, slots=True)
class DcgmError:
    """One row. `name` is without its prefix."""

    name: str
    means: str
    action: DcgmAction
    secondary: bool  # a consequence of another error, or a remark about the test


_NO_ACTION = DcgmAction("", "NVIDIA names no action", "none", "")


@cache
def dcgm_errors() -> Mapping[str, DcgmError]:
    """Every known error by its name without the prefix. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_DCGM_FILE), problems, "the table of DCGM errors")
    actions = {name: _action(name, node, problems) for name, node in root.items("actions")}
    found = {name: _error(name, Fields(node, problems, name), actions) for name, node in root.items("errors")}
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def lookup_dcgm_error(name: str) -> DcgmError:
    """The row of `name`, with or without its prefix; a placeholder row if unknown."""
    bare = name.removeprefix(PREFIX)
    return dcgm_errors().get(bare, DcgmError(bare, "an error unknown to this version", _NO_ACTION, False))


def _action(name: str, node: Node, problems: list[Problem]) -> DcgmAction:
    fields = Fields(node, problems, f"action {name}")
    parsed = DcgmAction(
        name,
        fields.text("does", required=True),
        fields.choice("needs", NEEDS, "none", required=True),
        fields.text("follow_up", required=True),
    )
    fields.finish()
    return parsed


def _error(name: str, fields: Fields, actions: Mapping[str, DcgmAction]) -> DcgmError:
    names = tuple(actions)
    action = fields.scalar("action", lambda text: one_of(text, names), "", required=True)
    parsed = DcgmError(
        name, fields.text("means", required=True), actions.get(action, _NO_ACTION), fields.flag("secondary")
    )
    fields.finish()
    return parsed


SEVERITIES = ("non-fatal", "link-fatal", "fatal")
_NVLINK_FILE = Path(__file__).parent / "xid_nvlink.yaml"
_REGISTERS = re.compile(r"\(0x([0-9a-fA-F]{1,8}) 0x([0-9a-fA-F]{1,8})\b")
_MASK = re.compile(r"[01-]{32}")
_ANY = "any"
# What must be restarted, in ascending order: of several errors in one line the worst decides.
_NEEDS = ("none", "decide", "application", "gpu", "node")


@dataclass(frozen=True, slots=True)
class RegisterMask:
    """Bits of a register: those of `care` must equal those of `bits`."""

    care: int
    bits: int

    @classmethod
    def of(cls, text: str) -> RegisterMask:
        """Raises ValueError unless `text` is 32 characters of `01-`."""
        if not _MASK.fullmatch(text):
            raise ValueError(f"{text!r} is not a 32-bit mask")
        return cls(int(re.sub("[01]", "1", text).replace("-", "0"), 2), int(text.replace("-", "0"), 2))

    def fits(self, register: int) -> bool:
        return register & self.care == self.bits


@dataclass(frozen=True, slots=True)
class NvlinkError:
    """One decision: for these values of the first register, and this second one (None: any)."""

    units: tuple[str, ...]
    info: tuple[RegisterMask, ...]
    status: int | None
    action: ResolutionBucket
    follow_up: ResolutionBucket
    severity: str

    def fits(self, info: int, status: int) -> bool:
        return self.status in (None, status) and any(mask.fits(info) for mask in self.info)

    def is_among(self, info: int, status: int) -> bool:
        """Whether its status is one of the set bits."""
        bit = self.status or 0
        return bit.bit_count() == 1 and bool(status & bit) and any(mask.fits(info) for mask in self.info)


@cache
def nvlink_table() -> Mapping[int, tuple[NvlinkError, ...]]:
    """The rows by Xid. Raises DefinitionError with all problems of the table."""
    problems: list[Problem] = []
    root = Fields(load(_NVLINK_FILE), problems, "the table of NVLink 5")
    known = {row.name: row for one in xid_catalogue().values() for row in (one.action, one.follow_up) if row.name}
    known |= {name: parse_bucket(name, node, problems) for name, node in root.items("buckets")}
    found: dict[int, tuple[NvlinkError, ...]] = {}
    for code, groups in root.items("codes"):
        listed = groups.value if isinstance(groups.value, tuple) else ()
        found[int(code)] = tuple(row for group in listed for row in _rows(group, known, problems))
    root.finish()
    if problems:
        raise DefinitionError(problems)
    return found


def _rows(node: Node, known: Mapping[str, ResolutionBucket], problems: list[Problem]) -> Iterator[NvlinkError]:
    fields = Fields(node, problems, "a unit")
    units, masks = fields.texts("units"), []
    for text in fields.texts("info"):
        try:
            masks.append(RegisterMask.of(text))
        except ValueError as error:
            fields.problem(fields.where, str(error))
    errors = fields.node("errors", required=True)
    fields.finish()
    for one in errors.value if errors and isinstance(errors.value, tuple) else ():
        yield from _decisions(Fields(one, problems, "an error"), units, tuple(masks), known)


def _decisions(
    fields: Fields, units: tuple[str, ...], masks: tuple[RegisterMask, ...], known: Mapping[str, ResolutionBucket]
) -> Iterator[NvlinkError]:
    names = tuple(known)
    action = known[fields.choice("action", names, "IGNORE", required=True)]
    follow_up = known[fields.choice("follow_up", names, "IGNORE", required=True)]
    severity = fields.choice("severity", SEVERITIES, SEVERITIES[0], required=True)
    for status in fields.texts("status"):
        yield NvlinkError(units, masks, None if status == _ANY else int(status, 16), action, follow_up, severity)
    fields.finish()


def decode_nvlink(code: int, detail: str) -> NvlinkError | None:
    """Decode the registers of a line: the row of its status, else the worst of those whose bits are set.

    None if the line has no registers, or unknown ones.
    """
    registers = _REGISTERS.search(detail) if code in nvlink_table() else None
    if registers is None:
        return None
    info, status = int(registers[1], 16), int(registers[2], 16)
    rows = nvlink_table()[code]
    fitting = [row for row in rows if row.fits(info, status)] or [row for row in rows if row.is_among(info, status)]
    return max(fitting, key=lambda row: (_NEEDS.index(row.action.needs), SEVERITIES.index(row.severity)), default=None)
