"""What is redacted, what stays, and that equal values keep equal pseudonyms."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.evidence.baseline import Baseline, Remembered
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.bundle_files import opened, save
from latdoctor.evidence.model import Gap, Window
from latdoctor.evidence.redaction.bundle import redacted
from latdoctor.evidence.redaction.patterns import NOTHING
from latdoctor.evidence.redaction.redactor import Redactor, pieces

TAKEN = [
    # line, what must be gone, what must still stand
    ('10.1.2.3 - bob [31/Jan/2026:02:49:00 +0000] "GET /users/48151/chat?q=why+so+slow&n=2 HTTP/1.1" 200 5',
     ["10.1.2.3", "bob", "48151", "why"], ["/users/", "/chat?q=", "200 5", "31/Jan/2026"]),
    ('Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk', ["eyJ"], ["Authorization: Bearer"]),
    ('authorization="Basic dXNlcjpwYXNz"', ["dXNlcjpwYXNz"], ["Basic"]),
    ("Cookie: a=1; session=abcdef", ["abcdef", "a=1"], ["Cookie:"]),
    ("password=hunter2 next=1", ["hunter2"], ["next=1"]),
    ('{"api_key": "abc123def", "max_tokens": 512}', ["abc123def"], ['"max_tokens": 512']),
    ("hf_abcdefghijklmnopqrstuvwx and sk-abcdefghijklmnopqrst", ["hf_abc", "sk-abc"], [" and "]),
    ("mail from jane.doe@example.com at 5", ["jane", "example.com"], ["at 5"]),
    ("user_id=4711 session_id: 'abc' latency=5ms", ["4711", "'abc'"], ["latency=5ms"]),
    ('requests_total{user="bob",client="10.0.0.9:4431",code="200"} 7', ["bob", "10.0.0.9"], ['code="200"} 7', ":4431"]),
    ("Received request cmpl-1: prompt: 'Tell me \\'all\\' of it', params: x", ["Tell", "all"], ["params: x", "cmpl-1"]),
    ('{"prompt": "my \\"secret\\" disease", "n": 1}', ["disease", "secret"], ['"n": 1']),
    ('{"messages":[{"role":"user","content":"see [1] my address"},{"role":"assistant","content":"no"}]}',
     ["see", "my address", '"no"'], ['"role"', "messages"]),
    ('{"log":"{\\"prompt\\":\\"inner text\\",\\"n\\":1}\\n"}', ["inner text"], ['\\"n\\":1']),
    ("prompt_token_ids: [1, 15043, 29871], lora: None", ["15043"], ["lora: None"]),
    ("Prompt: what is my balance", ["balance"], ["Prompt: "]),
    ('{"inputs": "text of a customer"}', ["text of"], ["inputs"]),
    ("see https://bob:pw@api.example.com/v1/accounts/1234567?token=abc&x=y", ["bob", "pw@", "1234567", "abc"],
     ["api.example.com/v1/accounts/"]),
    ("request 5f2c1a3e-1111-2222-3333-444455556666 took 5 ms", ["5f2c1a3e"], ["took 5 ms"]),
    ("from fe80::1ff:fe23:4567:890a to 2001:db8::8a2e:370:7334", ["fe80", "2001:db8"], [" to "]),
    ("serve --api-key=KEYKEY1 --token TOKTOK1 --password hunter5 --max-tokens 512", ["KEYKEY1", "TOKTOK1", "hunter5"],
     ["--api-key=", "--max-tokens 512"]),
    ("cache redis://:RedisPw99@cache:6379/0, mysql://root:p@ss!@db/x", ["RedisPw", "p@ss", "root"],
     ["cache:6379/0", "db/x"]),
    ("glpat-abcdefghij0123456789 and AIzaSyA1234567890abcdefghijklmnopqrstu", ["glpat-a", "AIzaSy"], [" and "]),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\nDEF==\n-----END RSA PRIVATE KEY-----\nnext", ["MIIE", "DEF"],
     ["BEGIN RSA PRIVATE KEY", "next"]),
    ("prompt=tell me all of it latency=5ms", ["tell me"], ["prompt=", "latency=5ms"]),
    ("input text: what ails me", ["ails"], ["input text: "]),
    ('{"user_id":4711,"n":1}', ["4711"], ['{"user_id":"user-', '","n":1}']),
    (f"File {'/home'}/bob/app/serve.py, line 3", ["bob"], ["/app/serve.py, line 3"]),
    ("request of user alice took 5 ms", ["alice"], ["request of user user-", " took 5 ms"]),
    ("rate limit reached for user alice", ["alice"], ["for user user-"]),
    ("User alice logged in", ["alice"], ["User user-", " logged in"]),
    ("user=alice code=200", ["alice"], ["user=user-", " code=200"]),
    ("session opened for user alice.smith(uid=1000)", ["alice", "smith", "1000"], ["session opened for user "]),
    ("Failed password for invalid user bob from 10.1.2.3 port 22", ["bob", "10.1.2.3"], [" from ", "port 22"]),
    ("Accepted publickey for alice from 10.1.2.3 port 22", ["alice"], ["Accepted publickey for user-", " port 22"]),
    ("denied to user 'alice'; user u-4711 too; end", ["alice", "u-4711"], ["denied to user 'user-", " too; "]),
    ('{"msg": "quota of user \\"alice\\" is used up"}', ["alice"], ["is used up"]),
    ("for user 4711: 3 requests.", ["4711"], [": 3 requests."]),
    ("left by user alice.", ["alice"], ["left by user user-"]),
    ("eth0: 3c:ec:ef:12:ab:0d up, 3C-EC-EF-12-AB-0D", ["3c:ec", "3C-EC", "ab:0d"], ["eth0: mac-", " up, mac-"]),
    ("IN=eth0 MAC=3c:ec:ef:12:ab:0d:3c:ec:ef:12:ab:0e:08:00 SRC=x", ["3c:ec", ":0e"], ["MAC=mac-", " SRC=x"]),
    ("from fe80::1%eth0 and fe80::2 port 5", ["fe80"], ["from ip-", " and ip-", " port 5"]),
    ("DB_PASSWORD=hunter2 OPENAI_API_KEY: hunter3 GITHUB_TOKEN=hunter4 x", ["hunter"], ["DB_PASSWORD=redacted", " x"]),
    ("serve --openai-api-key hunter2 --port 80", ["hunter2"], ["--openai-api-key redacted --port 80"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "gone", "kept"), TAKEN, ids=[row[0][:40] for row in TAKEN])
def test_taken_out(line: str, gone: list[str], kept: list[str]) -> None:
    redactor = Redactor(b"key")
    shown = redactor.text(line)
    assert [text for text in gone if text in shown] == []
    assert [text for text in kept if text not in shown] == []
    assert sum(redactor.counts.values()) >= 1
    assert redactor.text(shown) == shown, "redacting it again changes nothing"


@pytest.mark.parametrize(
    "line",
    [
        "[ 1843.308145] NVRM: Xid (PCI:0000:9b:00): 48, pid=7, name=python3, Ch 00000008, intr 00000000",
        "2026-01-31T02:49:00.123456Z INFO listening on 127.0.0.1:8000 and [::1]:8000 and 0.0.0.0",
        "GPU 0: NVIDIA H100 (UUID: GPU-5f2c1a3e-1111-2222-3333-444455556666)",
        "driver 590.48.01, cuDNN 8.9.2.26, version 12.4.1.5, c10::add at::native::x std::vector",
        "max_token=5 token: 512 tokens/s=3 prompt tokens: 12, generation throughput: 5.1 tokens/s",
        "CUDA error: an illegal memory access was encountered",
        'vllm:prompt_tokens_total{model_name="a"} 1.5e+06',
        '{"ph":"X","cat":"kernel","name":"void at::native::add<float>","args":{"Concrete Inputs":["","[1, 2]"]}}',
        "latency=12ms status=200 path=/v1/models/resnet50/versions/1",
        "10:11:12 0000:9b:00.0 dead:beef dead::beef",
        "cpu user time 5 s, user 0.5 sys 0.1, 3 user 12.3%, user 7 system 3",
        "user agent curl, user space, in user mode, user requests: 5, for user input, of user data",
        "the user cancelled, user defined settings, user facing latency, user annotations, user interaction",
        "the user says so, a new user came, no such user exists, user sent 3 requests per user, as the user goes on",
        "a pad_token=<s> of the tokenizer, eos_token: </s>",
        "mac 00:00:00:00:00:00 and ff:ff:ff:ff:ff:ff on 26-01-31-02-49-00",
        "sha1 aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd",
    ],
)
def test_stays(line: str) -> None:
    assert Redactor(b"key").text(line) == line


def test_one_text_has_one_pseudonym_in_a_bundle_and_another_elsewhere() -> None:
    one, other = Redactor(), Redactor()
    twice = one.text("10.1.2.3 said; then 10.1.2.3 again, and 10.1.2.4")
    assert len(set(re.findall(r"ip-[0-9a-f]{8}", twice))) == 2
    assert twice.split()[0] == twice.split(";")[1].split()[1]
    assert one.text("10.1.2.3") != other.text("10.1.2.3")


def test_json_stays_json() -> None:
    record = {"user": 'a"b', "prompt": ["x", "y\\"], "content": "z\n", "ip": "10.1.2.3", "n": 1, "password": 'p"q'}
    shown = json.loads(Redactor(b"key").text(json.dumps(record)))
    assert shown.keys() == record.keys()
    assert shown["n"] == 1
    assert not {"a", "x", "z", "10.1.2.3"} & set(json.dumps(shown).split('"'))


@given(st.dictionaries(st.sampled_from(["user", "prompt", "content", "token", "ip", "msg"]), st.text(max_size=30)))
def test_any_json_stays_json(record: dict[str, str]) -> None:
    shown = json.loads(Redactor(b"key").text(json.dumps(record)))
    assert shown.keys() == record.keys()
    for name in record.keys() & {"user", "prompt", "content"}:
        assert not record[name] or record[name] in NOTHING or shown[name] != record[name]


@given(st.binary(max_size=400))
def test_any_bytes_are_redacted_once(raw: bytes) -> None:
    once = Redactor(b"key").content(raw)
    assert Redactor(b"key").content(once) == once


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 40))
def test_pieces_lose_nothing(blocks: list[bytes], longest: int) -> None:
    assert b"".join(pieces(iter(blocks), longest)) == b"".join(blocks)


def test_effort_is_bounded() -> None:
    repeated = ("user ", "user '", "for user a", "3c:", "A_", "a-", "fe80::1%", "MAC=3c:", "1::")
    for nasty in (
        *(one * 40_000 for one in repeated),
        "a" * 200_000,
        ":" * 200_000,
        "1." * 100_000,
        '"' * 200_000,
        "@" * 100_000,
        "prompt: [" * 20_000,
    ):
        Redactor(b"key").text(nasty)


def bundle(*artifacts: Artifact) -> Bundle:
    remembered = Baseline("bot", "2026-01-31T00:00:00+00:00", (Remembered("latency.p99", "server/10.0.0.7:8002", 0.1),))
    gap = Gap("prometheus", "http://10.0.0.7:8002 does not answer", subject="server/10.0.0.7:8002")
    return Bundle(Context("http://10.0.0.7:8002"), Window(0.0, 1.0), artifacts, (gap,), remembered)


def test_a_whole_bundle(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(b'{"traceEvents":[{"name":"a","args":{"user":"bob"}}]}'))
    page = b'x_total{user="bob"} 1\n'
    made = bundle(
        Artifact(
            "prometheus/1-10.0.0.7_8002.prom", "prometheus", "1-10.0.0.7_8002", "http://10.0.0.7:8002/m", 0.0, page
        ),
        Artifact("torch_trace/trace.json.gz", "torch_trace", "t", "trace.json.gz", 0.0, trace),
        Artifact("other/db", "other", "db", "db", 0.0, b"SQLite format 3\0bob"),
        Artifact("host/000.json", "host", "host", "/proc", 0.0, b'{"user":"kept: our own numbers"}'),
    )
    redactor = Redactor()
    save(redacted(made, redactor), tmp_path / "out.tar.zst", "1", redactor)
    with opened(tmp_path / "out.tar.zst") as kept:
        texts = {artifact.name: artifact.read() for artifact in kept.artifacts}
        page_name, trace_name, binary, host = texts
        assert b"bob" not in texts[page_name]
        inside = gzip.decompress(texts[trace_name])
        assert json.loads(inside)["traceEvents"][0]["args"]["user"].encode() in texts[page_name]
        assert texts[host] == b'{"user":"kept: our own numbers"}'
        assert kept.redaction is not None
        assert kept.redaction.unread == ("other/db",)
        assert kept.redaction.replaced["user ids"] == 2
        told = repr((kept.context, kept.gaps, kept.baseline, [one.source for one in kept.artifacts], list(texts)))
        assert "10.0.0.7" not in told
        assert kept.baseline is not None
        pseudonym = kept.baseline.values[0].subject.removeprefix("server/")
        assert pseudonym in kept.artifacts[0].source
        assert kept.gaps[0].subject == kept.baseline.values[0].subject
        assert binary == "other/db"
