"""Sources that name one GPU differently: one subject where they identify it, separate and reported otherwise."""

from __future__ import annotations

from itertools import permutations

import pytest
from msgspec import structs

from latdoctor.collectors.documents import reader as documents
from latdoctor.collectors.logs import collector as logs
from latdoctor.conditions.evaluator import HOLDS, Facts, evaluate
from latdoctor.detectors import derive
from latdoctor.detectors.gpu_identity import merge_gpu_subjects
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Series, Subject
from latdoctor.evidence.subject_branch import uuid_of
from tests.evidence.builders import condition

FIRST, SECOND = "GPU-11111111-2222-3333-4444-555555555555", "GPU-99999999-2222-3333-4444-555555555555"


def card(subject: str, parent: str, uuid: str = "", pci: str = "", **numbers: float) -> Evidence:
    told = {"gpu.name": "NVIDIA H100", "gpu.uuid": uuid, "gpu.pci": pci}
    texts = [Reading(name, subject, value, Origin(parent)) for name, value in told.items() if value]
    values = [Reading(name.replace("__", "."), subject, value, Origin(parent)) for name, value in numbers.items()]
    return Evidence(subjects=(Subject(parent), Subject(subject, parent)), readings=(*texts, *values))


def log(*lines: str, name: str = "kern.log") -> Evidence:
    content = "\n".join(["[    1.000000] usb 1-1: new device", *lines]).encode()
    return logs.READER.parse([Artifact(f"logs/{name}", "logs", name, name, 1.77e9, content)])


def xid(pci: str) -> str:
    return f"[ 1843.308145] NVRM: Xid (PCI:{pci}): 48, pid=7, name=x, DBE"


NVML = card("gpu/0", "node/local", FIRST, "0000:9b:00", gpu__temperature=91.0)
EXPORTER = card("gpu/3@gpus:9400", "server/gpus:9400", FIRST.upper().replace("GPU-", ""), gpu__power=350.0)


def together(*parts: Evidence) -> Evidence:
    return merge_gpu_subjects(Evidence.merge(parts))


def subjects(found: Evidence) -> set[str]:
    return {one.subject for one in (*found.readings, *found.events) if one.subject.startswith("gpu/")}


def apart(found: Evidence) -> list[str]:
    return [gap.reason for gap in found.gaps if "stays a separate subject" in gap.reason]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_driver_log_nvml_and_exporter_are_one_card(order: tuple[int, ...]) -> None:
    parts = (NVML, EXPORTER, log(xid("0000:9b:00")))
    found = together(*(parts[place] for place in order))
    assert subjects(found) == {"gpu/0"}
    assert {one.signal for one in found.readings} >= {"gpu.temperature", "gpu.power"}
    assert ("log.xid", "gpu/0") in found.looked
    assert found.lineage("gpu/0") == ("gpu/0", "node/kern.log", "node/local")
    assert not apart(found)
    assert merge_gpu_subjects(found) == found


def test_a_condition_over_two_sources_holds_for_the_card() -> None:
    found = together(NVML, log(xid("0000:9b:00")))
    facts = Facts(found, {}, {}, {})
    assert evaluate(condition("count(log.xid) > 0"), "gpu/0", facts).status == HOLDS
    assert evaluate(condition("gpu.temperature > 87C"), "gpu/0", facts).status == HOLDS
    # What the log says of its whole machine counts for the card as before.
    assert evaluate(condition("count(log.sxid) = 0"), "gpu/0", facts).status == HOLDS


def test_an_exporter_with_addresses_is_merged_with_the_log() -> None:
    exporter = card("gpu/3@gpus:9400", "server/gpus:9400", FIRST, "00000000:9B:00.0")
    found = together(exporter, log(xid("0000:9b:00")))
    assert subjects(found) == {"gpu/3@gpus:9400"}
    assert found.parents["node/kern.log"] == "server/gpus:9400"


def test_an_address_that_two_machines_have_stays_apart() -> None:
    other = card("gpu/0@other:9400", "server/other:9400", SECOND, "0000:9b:00")
    found = together(NVML, other, log(xid("0000:9b:00")))
    assert subjects(found) == {"gpu/0", "gpu/0@other:9400", "gpu/0000:9b:00"}
    (said,) = apart(found)
    assert "gpu/0, gpu/0@other:9400 have that PCI address" in said
    assert merge_gpu_subjects(found) == found


def test_an_unknown_address_stays_separate_and_is_reported() -> None:
    for exporter in (EXPORTER, card("gpu/1@gpus:9400", "server/gpus:9400", FIRST, "0000:c1:00")):
        found = together(exporter, log(xid("0000:9b:00")))
        assert "gpu/0000:9b:00" in subjects(found)
        (said,) = apart(found)
        assert "no known GPU reports that PCI address" in said
    assert not apart(together(log(xid("0000:9b:00")))), "a lone log needs no remark"


def test_slices_of_one_card_are_no_one_subject() -> None:
    slices = [card(f"gpu/0:GPU_I_ID={n}@gpus:9400", "server/gpus:9400", FIRST) for n in (1, 2)]
    found = together(*slices, NVML)
    assert subjects(found) == {"gpu/0", "gpu/0:GPU_I_ID=1@gpus:9400", "gpu/0:GPU_I_ID=2@gpus:9400"}


def test_everything_of_a_card_takes_its_name() -> None:
    series = Series("gpu.power", "gpu/3@gpus:9400", (1.0, 2.0), (1.0, 2.0), Origin("x"))
    more = Evidence(series=(series,), gaps=(Gap("metrics", "not exported", ("gpu.ecc.corrected",), "gpu/3@gpus:9400"),))
    found = together(NVML, EXPORTER, more)
    assert [one.subject for one in found.series] == ["gpu/0"]
    assert [gap.subject for gap in found.gaps] == ["gpu/0"]


def test_two_cards_of_one_log_and_two_logs_of_one_machine() -> None:
    second = card("gpu/1", "node/local", SECOND, "0000:c1:00")
    found = together(NVML, second, log(xid("0000:9b:00"), xid("0000:c1:00")), log(xid("0000:c1:00"), name="b.log"))
    assert subjects(found) == {"gpu/0", "gpu/1"}
    assert found.lineage("gpu/0")[-1] == found.lineage("gpu/1")[-1] == "node/local"
    assert "node/kern.log" in found.lineage("gpu/0")


def test_what_has_no_name_in_common_is_left_as_it_is() -> None:
    evidence = Evidence.merge([NVML, card("gpu/0@gpus:9400", "server/gpus:9400", SECOND)])
    assert merge_gpu_subjects(evidence) == evidence
    assert derive(evidence).subjects == evidence.subjects
    assert merge_gpu_subjects(structs.replace(evidence, readings=())) == structs.replace(evidence, readings=())


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        (FIRST, FIRST.removeprefix("GPU-")),
        (FIRST.removeprefix("GPU-").upper(), FIRST.removeprefix("GPU-")),
        ("GPU-00000000-0000-0000-0000-000000000000", ""),  # taken out
        ("MIG-11111111-2222-3333-4444-555555555555", ""),
        ("id-3f9a1c07", ""),  # a pseudonym
        ("GPU-a", ""),
        ("", ""),
    ],
)
def test_identities(text: str, uuid: str) -> None:
    assert uuid_of(text) == uuid


def smi(name: str, uuid: str, pci: str, driver: str = "580.95.05", index: str = "0") -> Evidence:
    text = f"index, uuid, pci.bus_id, driver_version, utilization.gpu [%]\n{index}, {uuid}, {pci}, {driver}, 50 %\n"
    return documents.parse([Artifact(f"documents/{name}", "documents", name, name, 1.77e9, text.encode())])


def test_a_text_and_the_kernel_log_of_one_machine_are_one_card() -> None:
    found = together(smi("a.csv", FIRST, "00000000:9B:00.0"), log(xid("0000:9b:00")))
    assert subjects(found) == {"gpu/0"}


def test_two_texts_of_one_machine_are_one_card() -> None:
    again = smi("b.csv", FIRST, "00000000:9B:00.0")
    assert subjects(together(smi("a.csv", FIRST, "00000000:9B:00.0"), again)) == {"gpu/0"}


def test_texts_of_two_machines_stay_apart() -> None:
    found = together(smi("a.csv", FIRST, "00000000:9B:00.0"), smi("b.csv", SECOND, "00000000:9B:00.0"))
    assert subjects(found) == {"gpu/0", "gpu/0@b.csv"}
    assert found.lineage("gpu/0@b.csv") == ("gpu/0@b.csv", "node/b.csv")
    assert {one.subject for one in found.gaps if one.subject} >= {"gpu/0", "gpu/0@b.csv"}
    assert merge_gpu_subjects(found) == found


def test_a_selection_that_numbers_its_gpu_anew_is_merged_by_uuid() -> None:
    both = Evidence.merge([smi("a.csv", FIRST, "0000:9b:00"), smi("a.csv", SECOND, "0000:c1:00", index="1")])
    found = together(both, smi("b.csv", SECOND, "0000:c1:00"))
    assert subjects(found) == {"gpu/0", "gpu/1"}


def test_a_device_plugin_names_a_card_by_its_uuid() -> None:
    found = together(
        smi("a.csv", FIRST, "00000000:9B:00.0"),
        log(f"XidCriticalError: Xid=48 on Device={FIRST}; marking device as unhealthy."),
    )
    assert subjects(found) == {"gpu/0"}
