"""Network and clock of a Linux machine: `ss -s`, `nstat`, `netstat -s`, `sysctl` of conntrack and ports, `ip -s link`,
`chronyc tracking`, `timedatectl`.
"""

from __future__ import annotations

import re
from itertools import pairwise

from latdoctor.collectors.documents.formats.linux_processor import host_evidence
from latdoctor.collectors.documents.text_format import Section, TextFormat
from latdoctor.evidence.model import Evidence

SOCKETS, ESTABLISHED, TIME_WAIT = "host.sockets", "host.tcp.established", "host.tcp.time_wait"
PORTS = "host.tcp.local_ports"
RETRANSMITTED, CONNTRACK = "host.tcp.retransmit_ratio", "host.conntrack.used_ratio"
DROPPED = "host.net.receive_drop_ratio"
OFFSET, SYNCHRONISED = "host.clock.offset", "host.clock.synchronised"
_SS = re.compile(r"^TCP:\s+(\d+) \(estab (\d+), closed \d+, orphaned \d+, .{0,30}?timewait (\d+)")
_TOTAL = re.compile(r"^Total: (\d+)", re.MULTILINE)
_NSTAT = re.compile(r"^(?:#kernel\s*$|Tcp(?:OutSegs|RetransSegs)\s+\d+\s+\d)")
_NSTAT_ROW = re.compile(r"^(Tcp\w+)\s+(\d+)\s+\d")
_NETSTAT = re.compile(r"^Tcp:\s*$|^\s+\d+ segments (?:received|sent out|retransmit{1,2}ed)\s*$")
_NETSTAT_ROW = re.compile(r"^\s+(\d+) segments (sent out|retransmit{1,2}ed)\b")
_SYSCTL = re.compile(
    r"^(?:net\.(?:netfilter|ipv4)\.|/proc/sys/net/\S{1,30}/)(nf_conntrack_count|nf_conntrack_max|ip_local_port_range)"
    r"\s*[=:]\s*(\d+)(?:\s+(\d+))?\s*$"
)
# Of the file alone the command says what it is.
_RANGE_FILE = re.compile(r"^.{0,80}[$#] (?:sudo )?(?:cat|head|more) /proc/sys/net/ipv4/ip_local_port_range\s*$")
_RANGE = re.compile(r"^(\d{3,5})\s+(\d{4,5})\s*$")
_LINK = re.compile(r"^\d{1,4}: (\S{1,40}): <[A-Z_,-]+> mtu \d+")
_RX = re.compile(r"^\s+RX: +bytes +packets +errors +dropped")
_FIGURES = re.compile(r"^\s+(\d+) +(\d+) +(\d+) +(\d+)\b")
_CHRONY = re.compile(r"^Reference ID\s+: ")
_CHRONY_OFFSET = re.compile(r"^System time\s+: (\d+\.\d+) seconds (slow|fast) of NTP time", re.MULTILINE)
_CHRONY_STATUS = re.compile(r"^Leap status\s+: (.*)$", re.MULTILINE)
_TIMEDATECTL = re.compile(r"^\s*(?:System clock synchronized|NTP synchronized): (yes|no)\s*$")
_FEWEST_SEGMENTS, _FEWEST_PACKETS = 10_000, 100_000  # a share of fewer says little


def read_sockets(section: Section) -> Evidence:
    """`ss -s`."""
    tcp = next((found for line in section.text.splitlines() if (found := _SS.match(line))), None)
    values = {ESTABLISHED: float(tcp[2]), TIME_WAIT: float(tcp[3])} if tcp else {}
    if total := _TOTAL.search(section.command):
        values[SOCKETS] = float(total[1])
    return host_evidence(values, section)


def read_counters(section: Section) -> Evidence:
    """The share of TCP segments that were sent again, by `nstat` or `netstat -s`."""
    counts: dict[str, float] = {}
    for line in section.text.splitlines():
        if row := _NSTAT_ROW.match(line):
            counts[row[1]] = float(row[2])
        elif row := _NETSTAT_ROW.match(line):
            counts["TcpOutSegs" if row[2] == "sent out" else "TcpRetransSegs"] = float(row[1])
    sent, again = counts.get("TcpOutSegs", 0.0), counts.get("TcpRetransSegs")
    return host_evidence(
        {RETRANSMITTED: again / sent} if again is not None and sent >= _FEWEST_SEGMENTS else {}, section
    )


def read_settings(section: Section) -> Evidence:
    """How full the table of tracked connections is, and how many local ports connections may use."""
    found = {row[1]: row for line in section.text.splitlines() if (row := _SYSCTL.match(line.strip()))}
    values: dict[str, float] = {}
    count, limit = found.get("nf_conntrack_count"), found.get("nf_conntrack_max")
    if count and limit and float(limit[2]) > 0:
        values[CONNTRACK] = float(count[2]) / float(limit[2])
    if (first := found.get("ip_local_port_range")) and first[3]:
        values[PORTS] = float(int(first[3]) - int(first[2]) + 1)
    elif _RANGE_FILE.match(section.text.partition("\n")[0]):
        ports = next((row for line in section.text.splitlines() if (row := _RANGE.match(line))), None)
        values |= {PORTS: float(int(ports[2]) - int(ports[1]) + 1)} if ports and int(ports[2]) > int(ports[1]) else {}
    return host_evidence(values, section)


def read_links(section: Section) -> Evidence:
    """The largest share of received packets that a network device dropped since it was set up."""
    shares: list[float] = []
    lines = section.text.splitlines()
    for heading, line in pairwise(lines):
        if _RX.match(heading) and (row := _FIGURES.match(line)):
            packets, dropped = float(row[2]), float(row[4])
            if packets + dropped >= _FEWEST_PACKETS:
                shares.append(dropped / (packets + dropped))
    return host_evidence({DROPPED: max(shares)} if shares else {}, section)


def read_clock(section: Section) -> Evidence:
    """What the clock deviates from its reference, and whether it follows one."""
    values: dict[str, float] = {}
    offset, status = _CHRONY_OFFSET.search(section.text), _CHRONY_STATUS.search(section.text)
    if offset:
        values[OFFSET] = float(offset[1]) * (-1 if offset[2] == "slow" else 1)
    if status:
        values[SYNCHRONISED] = 0.0 if status[1].strip().lower().startswith("not sync") else 1.0
    elif found := next((one for line in section.text.splitlines() if (one := _TIMEDATECTL.match(line))), None):
        values[SYNCHRONISED] = 1.0 if found[1] == "yes" else 0.0
    return host_evidence(values, section)


SOCKET_SUMMARY = TextFormat(
    "ss", "ss -s", _SS, read_sockets, frozenset({SOCKETS, ESTABLISHED, TIME_WAIT}), cumulative=True
)
TCP_COUNTERS = TextFormat(
    "tcp-counters", "nstat or netstat -s", re.compile(f"{_NSTAT.pattern}|{_NETSTAT.pattern}"), read_counters,
    frozenset({RETRANSMITTED}), confirms=re.compile(r"RetransSegs\s+\d|segments retrans"), repeats=True,
)  # fmt: skip
NETWORK_SETTINGS = TextFormat(
    "network-settings",
    "sysctl",
    re.compile(f"{_SYSCTL.pattern}|{_RANGE_FILE.pattern}"),
    read_settings,
    frozenset({CONNTRACK, PORTS}),
    repeats=True,
)
LINKS = TextFormat(
    "ip-link", "ip -s link", _LINK, read_links, frozenset({DROPPED}),
    confirms=re.compile(r"^\s+RX: +bytes", re.MULTILINE), repeats=True,
)  # fmt: skip
CLOCK = TextFormat(
    "clock", "chronyc tracking or timedatectl", re.compile(f"{_CHRONY.pattern}|{_TIMEDATECTL.pattern}"), read_clock,
    frozenset({OFFSET, SYNCHRONISED}), contains_times=True, repeats=True,
)  # fmt: skip
