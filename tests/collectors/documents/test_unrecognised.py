"""What a file is called in which nothing is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.documents.unrecognised import appearance
from latdoctor.collectors.logs.formats import decoded

CASES = {
    "": "it is empty",
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR": "it looks like a picture",
    b"%PDF-1.7\n%": "it looks like a PDF",
    b"PK\x03\x04" + bytes(26) + b"archive/data.pkl": "it looks like a model or checkpoint of torch",
    b"PK\x03\x04" + bytes(26) + b"pod.log": "it looks like an archive",
    b"must-gather/" + bytes(245) + b"ustar\0": "it looks like an archive",
    b"LPKSHHRH" + bytes(40): "it looks like a journal of systemd",
    b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x04\x00": "it looks like a core dump",
    b"\x20\x03\0\0\0\0\0\0" + b'{"__metadata__":{}}': "it looks like the weights of a model",
    bytes(range(128, 256)) * 9: "it is not text, and of no known binary format",
    "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>": "it looks like a web page (HTML)",
    "<project><modules/></project>": "it looks like XML",
    '{"batch": 4, "lr": 0.1}': "it is JSON with the fields batch, lr, which no known tool writes",
    '[{"a": 1}]': "it is JSON with the fields a, which no known tool writes",
    '{"cut": {"off": [1, 2': "it is JSON with the fields cut, off, which no known tool writes",
    "apiVersion: apps/v1\nkind: Deployment\n": "it looks like a manifest of Kubernetes",
    "services:\n  web:\n    image: x\n    ports:\n      - 80\n": "it looks like YAML",
    "import os\nimport sys\n\ndef main():\n    pass\n": "it looks like source code",
    "day,price\n1,2\n3,4\n": "it looks like a table with the columns day, price",
    "[" * 1_000_000: "its only line is not known",
    "our service is slow\n": "its only line is not known",
    "dear all\nit is slow\nregards\n": "none of its 3 lines is known",
}


@pytest.mark.parametrize(("content", "what"), CASES.items())
def test_a_file_of_an_unknown_kind_is_called_by_what_it_looks_like(content: bytes | str, what: str) -> None:
    seen = appearance(content.encode() if isinstance(content, str) else content, decoded)
    assert seen.what == what
    assert seen.next_step


@given(st.one_of(st.binary(max_size=400), st.text(max_size=400).map(str.encode)))
def test_any_bytes_have_an_appearance(content: bytes) -> None:
    seen = appearance(content, decoded)
    assert seen.what
    assert seen.what.isprintable()
    assert seen.next_step
