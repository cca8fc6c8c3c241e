"""No code decides by the wording of a message: reasons have codes, exceptions have types."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "latdoctor").rglob("*.py"))

# Attributes and variables that hold a sentence for people.
MESSAGES = frozenset(
    {
        *("message", "reason", "detail", "note", "hint", "sentence", "why", "what"),
        *("said", "says", "headline", "rationale", "next_step", "advice", "explanation", "description"),
        *("strerror", "verify_message", "error_text"),
    }
)
# Variables that hold an exception: str() of one is a message.
EXCEPTIONS = frozenset({"error", "err", "exc", "exception", "e", "cause", "problem", "failure"})
SAME_TEXT = frozenset({"str", "repr", "clean"})  # functions that keep the wording
SAME_WORDING = frozenset(  # methods that keep it, or a part of it
    {"lower", "upper", "casefold", "strip", "lstrip", "rstrip", "split", "splitlines", "partition", "rpartition"}
)
DECIDING = frozenset(
    {"startswith", "endswith", "removeprefix", "removesuffix", "find", "rfind", "index", "rindex", "count"}
)
MATCHING = frozenset({"match", "search", "fullmatch", "findall", "finditer"})
LOOKUPS = frozenset({"get", "pop"})

# Modules in which a `message` is input: the text of a log line or of a Kubernetes event is the evidence, and the
# `reason` of the latter is its code.
INPUT = ("collectors/logs/", "collectors/documents/kubernetes/")
# `module: expression`, with the reason why it is no decision by wording, or why there is no code to decide by.
ALLOWED = {
    "collectors/torch_trace/events.py: _BYTE.search(text)": "only in decode_fault(): msgspec has no codes",
    "collectors/torch_trace/events.py: 'trailing characters' in text": "only in decode_fault(): msgspec has no codes",
    "collectors/torch_trace/events.py: 'truncated' in text": "only in decode_fault(): msgspec has no codes",
    "diagnosis/evaluate.py: PLACE.finditer(message)": "a template of a rule file: its {signal} places are filled",
    "lab/telemetry/logs.py: message.startswith('NVRM: Xid')": "priority of a synthetic line of a kernel log",
    "lab/telemetry/driver_and_model_faults.py: message == _ASSERT": "which CUDA error a synthetic log line is",
    "lab/telemetry/triton.py: reason == 'BACKEND'": "the value of Triton's label `reason`",
    "report/remediation_run.py: result.next_step != f'latdoctor rollback {result.run}'": "a command, printed elsewhere",
    "report/answer.py: _NUMBER.findall(sentence)": "keeps two sentences with the same figures off one screen",
}


class WordingFinder(ast.NodeVisitor):
    """Collects the nodes that decide by the wording of a message: comparisons, searches in it, lookups by it."""

    def __init__(self) -> None:
        self.found: list[ast.AST] = []
        self._texts: frozenset[str] = frozenset()  # variables of the present function that hold str() of an exception

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, own = self._texts, [part for part in ast.walk(node) if isinstance(part, ast.Assign)]
        self._texts |= {
            target.id
            for assignment in own
            for target in assignment.targets
            if isinstance(target, ast.Name) and self._is_text_of_exception(assignment.value)
        }
        self.generic_visit(node)
        self._texts = outer

    def generic_visit(self, node: ast.AST) -> None:
        if self._decides(node):
            self.found.append(node)
        super().generic_visit(node)

    def _is_message(self, node: ast.expr) -> bool:
        """Whether the value of `node` is a sentence for people, or a part of one."""
        match node:
            case ast.Name(id=name):
                return name in MESSAGES or name in self._texts
            case ast.Attribute(attr=name):
                return name in MESSAGES
            case ast.Subscript(value=value):
                return self._is_message(value)
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SAME_WORDING:
                return self._is_message(value)
            case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in SAME_TEXT:
                return self._is_text_of_exception(node) or self._is_message(argument)
        return False

    def _is_text_of_exception(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=name) | ast.Attribute(attr=name), *_]):
                return function in SAME_TEXT and name in EXCEPTIONS
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in SAME_WORDING:
                return self._is_text_of_exception(value)
        return False

    def _decides(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare(left=left, ops=operators, comparators=compared):
                pairs = pairwise([left, *compared])
                return any(self._compares(*pair, operator) for pair, operator in zip(pairs, operators, strict=True))
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in DECIDING and self._is_message(value):
                return True
            case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in MATCHING:
                return any(map(self._is_message, arguments))
            case ast.Call(func=ast.Attribute(attr=name), args=[key, *_]) if name in LOOKUPS:
                return self._is_message(key)
            case ast.Subscript(slice=key, ctx=ast.Load()):
                return self._is_message(key)
            case ast.Match(subject=subject, cases=cases):
                parts = [part for case in cases for part in ast.walk(case.pattern)]
                values = [part.value for part in parts if isinstance(part, ast.MatchValue)]
                return self._is_message(subject) and any(map(is_wording, values))
        return False

    def _compares(self, left: ast.expr, right: ast.expr, operator: ast.cmpop) -> bool:
        match operator:
            case ast.In() | ast.NotIn():
                # `x in message` searches it; `reason in reasons` compares two messages.
                searched = self._is_message(right) and not self._is_message(left)
                return searched or (self._is_message(left) and is_wording(right))
            case ast.Eq() | ast.NotEq():
                pairs = ((left, right), (right, left))
                return any(self._is_message(one) and is_wording(other) for one, other in pairs)
        return False


def is_wording(node: ast.expr) -> bool:
    """Whether `node` is a text to compare with: a string that is not empty, a constant's name, or one of several."""
    match node:
        case ast.Constant(value=str(text)):
            return text != ""
        case ast.JoinedStr():
            return True
        case ast.Attribute(value=ast.Name(id=owner)) if not owner.isupper() and owner[:1].isupper():
            return False  # a member of an enumeration
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.Set(elts=elements) | ast.Tuple(elts=elements) | ast.List(elts=elements):
            return any(map(is_wording, elements))
    return False


def decisions(tree: ast.AST) -> list[ast.AST]:
    finder = WordingFinder()
    finder.visit(tree)
    return finder.found


@cache
def found() -> frozenset[str]:
    """Every decision in src/, as `module: expression`."""
    return frozenset(line for path in SOURCES for line in _found(path))


def _found(path: Path) -> Iterator[str]:
    module = str(path.relative_to(ROOT / "src" / "latdoctor"))
    if not module.startswith(INPUT):
        for node in decisions(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{module}: {ast.unparse(node).splitlines()[0]}"


def test_no_code_decides_by_the_wording_of_a_message() -> None:
    assert sorted(found() - ALLOWED.keys()) == []


def test_the_allow_list_has_no_entry_without_use() -> None:
    assert sorted(ALLOWED.keys() - found()) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "if 'timed out' in str(error): pass",
        "if 'CERTIFICATE' in reason.upper(): pass",
        "if NOTHING_COUNTED in gap.reason: pass",
        "if gap.message.startswith(source): pass",
        "said = gap.reason.removeprefix(f'{gap.subject}: ')",
        "if re.match('no GPU', error.what): pass",
        "if _LOST.search(str(exc).lower()): pass",
        "step = _ADVICE.get(reason, DEFAULT)",
        "step = _ADVICE[detail]",
        "if reason == 'driver not loaded': pass",
        "if error.next_step != FOREIGN: pass",
        "def f(error):\n    text = str(error)\n    return 'truncated' in text",
        "if reason in ('not supported', 'unknown'): pass",
        "if source.place in gap.reason: pass",
        "if clean(detail, 200).endswith('lost'): pass",
        "if reason.split(':')[0] == 'interrupted': pass",
        "match reason:\n    case 'lost': pass",
        "match error.what:\n    case Words.x if False: pass\n    case 'lost': pass",
    ],
)
def test_a_decision_by_wording_is_found(snippet: str) -> None:
    assert decisions(ast.parse(snippet))


@pytest.mark.parametrize(
    "snippet",
    [
        "if gap.code is GapCode.EMPTY: pass",
        "if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT: pass",
        "if isinstance(error.__cause__, ssl.SSLError): pass",
        "if not reason: pass",
        "if reason == '': pass",
        "if reason is None: pass",
        "if notice.what == NoticeKind.ALERT: pass",
        "lines = [reason for reason in reasons if reason]",
        "for reason in reasons: print(reason)",
        "counts = Counter(reasons)",
        "totals[reason] = 1",
        "shown = f'{subject}: {reason}'",
        "if name.startswith('gpu.'): pass",
        "if 'x' in labels: pass",
        "match event:\n    case Stop(): pass",
        "short = reason[:200]",
        "text = str(error)",
    ],
)
def test_other_code_is_not(snippet: str) -> None:
    assert decisions(ast.parse(snippet)) == []
