"""Finding metrics pages on this machine's ports."""

from __future__ import annotations

import socket
import struct
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from latdoctor.collectors.prometheus.discovery import discover_pages
from tests.collectors.prometheus.serving import page, served

ANY = str(IPv4Address(0))
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def address(host: str, port: int) -> str:
    """As the kernel prints it: each 32-bit word in the machine's own byte order."""
    raw = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    order = "<" if sys.byteorder == "little" else ">"
    words = struct.unpack(f"{order}{len(raw) // 4}I", raw)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def table(tmp_path: Path, rows: list[tuple[str, int, str]], name: str = "tcp") -> Path:
    lines = [
        f"   {n}: {address(host, port)} {address('::' if ':' in host else ANY, 0)} {state} 0:0 0:0 0 0 0 1 1\n"
        for n, (host, port, state) in enumerate(rows)
    ]
    (tmp_path / name).write_text(HEAD + "".join(lines), encoding="ascii")
    return tmp_path


def port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def test_known_and_unknown_pages_are_distinguished(tmp_path: Path) -> None:
    vllm = b'vllm:num_requests_running{model_name="m"} 1\n'
    with (
        served(page(lambda: b"my_family 1\n")) as unknown,
        served(page(lambda: vllm)) as known,
        served(page(lambda: b"<html></html>")) as html,
    ):
        rows = [("127.0.0.1", port(unknown), "0A"), (ANY, port(known), "0A"), ("127.0.0.1", port(html), "0A")]
        discovery = discover_pages(table(tmp_path, rows), timeout=5.0)
    assert [(one.url, one.dialects, one.title) for one in discovery.found] == [
        (f"{known}/metrics", ("vllm",), "vLLM"),
        (f"{unknown}/metrics", (), "unknown"),
    ]
    assert discovery.found[1].families == ("my_family",)
    assert discovery.ports_probed == 3
    assert not discovery.gaps


@pytest.mark.parametrize(
    "row",
    [
        ("127.0.0.1", 45000, "01"),  # a connection, no listener
        ("10.1.2.3", 45000, "0A"),  # another interface
        ("127.0.0.1", 5432, "0A"),  # a database, which is not to be bothered
        ("::ffff:10.1.2.3", 45000, "0A"),
    ],
)
def test_ports_that_are_not_probed(tmp_path: Path, row: tuple[str, int, str]) -> None:
    table(tmp_path, [])
    assert discover_pages(table(tmp_path, [row], "tcp6" if ":" in row[0] else "tcp"), timeout=0.2).ports_probed == 0


@pytest.mark.parametrize("host", ["::", "::ffff:127.0.0.1"])
def test_sockets_of_both_families_are_probed(tmp_path: Path, host: str) -> None:
    table(tmp_path, [])
    with served(page(lambda: b"my_family 1\n")) as url:
        discovery = discover_pages(table(tmp_path, [(host, port(url), "0A")], "tcp6"), timeout=5.0)
    assert [one.url for one in discovery.found] == [f"{url}/metrics"]


def test_the_number_of_ports_is_bounded_and_likely_ones_come_first(tmp_path: Path) -> None:
    with served(page(lambda: b"my_family 1\n")) as url:
        rows = [("127.0.0.1", 60000 + n, "0A") for n in range(3)] + [("127.0.0.1", port(url), "0A")]
        discovery = discover_pages(table(tmp_path, rows), timeout=0.5, most=2)
    assert discovery.ports_probed == 2
    assert "4 ports are listening; only 2 were probed" in discovery.gaps[0].reason


def test_a_machine_without_the_table_is_a_gap(tmp_path: Path) -> None:
    discovery = discover_pages(tmp_path)
    assert discovery.ports_probed == 0
    assert "cannot be read" in discovery.gaps[0].reason
    assert discovery.gaps[0].next_step


def test_a_table_of_nonsense_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(HEAD + "  0: zz:zz 0 0A\n 1: 00 0 0A\n x\n 2: 0100:1F90 0 0A\n", encoding="ascii")
    assert discover_pages(tmp_path).ports_probed == 0
