"""Where a control group is made, and which pages are reclaimed: the plain rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import OperationError
from latdoctor.lab.faults.page_reclaim import PAGE, file_pages, file_ranges, part
from latdoctor.lab.faults.process_limits import CgroupLocation, locate_cgroup

V1 = "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
V1_SET = "31 25 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
V2 = "32 25 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
PART = "33 25 0:26 /docker/a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


@pytest.mark.parametrize(
    ("cgroup", "mounts", "expected"),
    [
        ("1:cpu,cpuacct:/\n0::/\n", V1_SET + V1 + V2, CgroupLocation(1, *["/sys/fs/cgroup/cpu,cpuacct"] * 2)),
        ("3:cpuset:/x\n1:cpu,cpuacct:/a/b\n", V1_SET + V1, CgroupLocation(1, *["/sys/fs/cgroup/cpu,cpuacct/a/b"] * 2)),
        (
            "0::/a.slice/b.service\n",
            V2,
            CgroupLocation(2, "/sys/fs/cgroup/a.slice/b.service", "/sys/fs/cgroup/a.slice"),
        ),
        ("0::/a\n", V2, CgroupLocation(2, "/sys/fs/cgroup/a", "/sys/fs/cgroup")),
        ("0::/\n", V2, CgroupLocation(2, "/sys/fs/cgroup", "/sys/fs/cgroup")),
        ("1:cpu:/a:b\n", V1, CgroupLocation(1, *["/sys/fs/cgroup/cpu,cpuacct/a:b"] * 2)),
    ],
)
def test_the_group_is_below_in_version_1_and_beside_in_version_2(
    cgroup: str, mounts: str, expected: CgroupLocation
) -> None:
    assert locate_cgroup(cgroup, mounts) == expected


@pytest.mark.parametrize(
    ("cgroup", "mounts"),
    [("1:cpu:/\n", V1_SET), ("1:cpu:/docker/a\n", PART), ("", V2), ("1:cpu:/../a\n", V1), ("0::/../a\n", V2)],
)
def test_where_there_is_none_that_is_said(cgroup: str, mounts: str) -> None:
    with pytest.raises(OperationError, match="control group"):
        locate_cgroup(cgroup, mounts)


def test_only_mappings_of_files_are_reclaimed() -> None:
    maps = (
        "1000-3000 r-xp 00000000 fe:00 12 /usr/lib/a b.so\n"
        "3000-4000 rw-p 00000000 00:00 0\n"
        "4000-5000 rw-p 00000000 00:00 0 [heap]\n"
        "5000-6000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n"
        "6000-7000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n"
        "7fff0000-7fff1000 r--p 00000000 fe:00 12 /usr/lib/a b.so\n"
    )
    assert file_ranges(maps) == [(0x1000, 0x2000), (0x7FFF0000, 0x1000)]


def test_file_pages_are_split_into_private_and_shared() -> None:
    smaps = (
        "1000-3000 r-xp 00000000 fe:00 12 /usr/lib/a.so\nSize: 8 kB\nShared_Clean: 4 kB\nPrivate_Clean: 12 kB\n"
        "Private_Dirty: 4 kB\nVmFlags: rd mr\n"
        "3000-4000 rw-p 00000000 00:00 0 \nShared_Dirty: 64 kB\nPrivate_Dirty: 64 kB\n"
        "4000-5000 rw-p 00000000 00:00 0 [heap]\nPrivate_Dirty: 64 kB\n"
        "5000-6000 r--p 00000000 fe:00 12 /a:b\nShared_Clean: 8 kB\n"
    )
    assert file_pages(smaps) == (16 << 10, 12 << 10)


pages = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(sizes=pages, begin=st.integers(0, 30), length=st.integers(0, 30))
def test_a_part_of_the_ring_is_just_as_long_and_inside(sizes: list[int], begin: int, length: int) -> None:
    ranges = [(number << 30, size * PAGE) for number, size in enumerate(sizes)]
    begin %= sum(sizes)
    found = part(ranges, begin * PAGE, length * PAGE)
    taken = [
        (address >> 30, (address & (1 << 30) - 1) // PAGE + page)
        for address, size in found
        for page in range(size // PAGE)
    ]
    assert len(taken) == len(set(taken)) == min(length, sum(sizes))
    assert all(page < sizes[number] for number, page in taken)
    ring = [(number, page) for number, size in enumerate(sizes) for page in range(size)]
    assert set(taken) == {ring[(begin + step) % len(ring)] for step in range(min(length, len(ring)))}
