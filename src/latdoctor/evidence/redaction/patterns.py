"""Regular expressions of what is redacted in any text: the group that matched last identifies the kind.

Each takes time that grows with the length of the text alone: repetitions are bounded, or possessive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from latdoctor.evidence.redaction.names import CORES

OWN = re.compile(r"(?:ip|mac|user|id|mail|prompt|value)-[0-9a-f]{8}(?:-\d+-characters)?|redacted")

# A name around a word that names of credentials contain; `names.secrecy` judges the whole name.
_CORES = rf"(?:{'|'.join(re.escape(core) for core in CORES)})"
_NAMED = rf"[\w.-]{{0,60}}?{_CORES}[\w.-]{{0,30}}+"
_USER_NAMES = (
    r"(?:(?:end[_-]?)?user(?:[_-]?(?:id|name|email))?|username|x-user-id|remote_user|customer(?:[_-]?id)?|account[_-]?id"
    r"|client[_-]?id|uid|tenant[_-]?id|member[_-]?id|session[_-]?id|conversation[_-]?id|chat[_-]?id|device[_-]?id"
    r"|phone(?:[_-]?number)?|email|(?:first|last|full)[_-]?name|ip[_-]?address)"
)
_AFTER_QUOTE = r"(?<=[\"'])"
_PROMPT_NAMES = (
    r"(?:(?:[a-z]{1,20}_)?prompts?|completions?|contents?|user_message|question|query|answer|user_input|input_text|output_text"
    r"|generated_text|response_text|reasoning_content|chat_history|utterance|transcript|text_input|text_output|inputtext"
    r"|outputtext|partial_json|(?:prompt_)?token_ids|input_ids|" + _AFTER_QUOTE + r"inputs)"
)
# Names that other things have too: `redactor.Redactor` looks at what stands around them.
_DOUBTFUL_NAMES = (
    r"(?:texts?|inputs?|messages?|instructions?|system|documents?|passages?|suffix|arguments|reasoning|thinking|refusal|data"
    r"|outputs?|parts|queries|sentences|title|tools|q)"
)
_QUOTED = r"(?:\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?|\\\"(?:[^\"\\]|\\\\\\\"|\\[^\"])*+(?:\\\")?)"
_BETWEEN = r"(?:\\?[\"'])?\s{0,3}[:=]\s{0,3}"
# Also `name => value`, `name=Type('value')`, `('name', b'value')`, `--name value`, `<name>value`, and the columns of
# `kubectl describe`.
_TO = (
    r"(?:(?:\\?[\"']\]?)?\s{0,3}(?:=>|:=|[:=]|\sis\s)\s{0,40}(?:[|>][+-]?\\{1,2}n\s{0,40})?(?:\[\s?(?=\\?[\"']))?|\\?[\"'],\s{0,2}(?=b?[\"'])|>(?=[^\s<>]{1,400}</))"
    r"(?:(?-i:[A-Z])\w{0,40}\((?=b?[\"']))?(?:[bru]{1,2}(?=[\"']))?"
)
_WORD = r"[^\s,;&\"'}\])<]{1,400}"
_LIST = rf"\[(?:[\d,\s]|{_QUOTED})*+\]"
_LISTS = rf"\[(?:[\d,\s]|{_QUOTED}|{_LIST})*+\]"
_NAME = r"[a-z0-9_][\w.@-]{0,63}"
_LED_BY = r"(?:for|by|from|as|of|invalid|unknown|illegal|named|called)"
_V4 = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}"
_HEX = "[0-9a-fA-F]"
_MAC = rf"{_HEX}{{2}}(?:(?::{_HEX}{{2}}){{5}}|(?:-{_HEX}{{2}}){{5}})"
_ZONE = r"(?:%[\w.-]{1,32})?"
_V6 = r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}"

# `token VALUE`: `makers` judges the value, as more than a credential follows such a word.
_SPOKEN = r"(?:token|passw(?:or)?d|passphrase|passcode|(?:api|access|secret)[ -]key)"
_SPOKEN_CHAR = r"[^\s,;&\"'}\])<(/]"
_SPOKEN_VALUE = rf"(?={_SPOKEN_CHAR}{{0,400}}\d)(?={_SPOKEN_CHAR}{{0,400}}[a-z]){_SPOKEN_CHAR}{{6,400}}"
# A turn of ShareGPT, and an attribute of OpenTelemetry, whose names stand as values.
SPEAKER = r"(?:human|user|gpt|chatgpt|bing|bard|assistant|system|tool|observation|function_call|function_response)"
_TURN = (
    rf"(?:\"from\\?\":\s{{0,3}}\\?\"{SPEAKER}\\?\",(?:\s|\\{{1,2}}n){{0,8}}\\?\"|'from':\s{{0,3}}'{SPEAKER}',\s{{0,3}}'"
    r"|\"key\\?\":\s{0,3}\\?\"(?:gen_ai|llm|traceloop|input|output)\.[\w.]{0,60}"
    r"(?:content|prompt|completion|messages|value|arguments|instructions)\\?\",\s{0,3}\\?\")"
    r"value\\?[\"']:\s{0,3}(?:\{\s{0,3}\\?\"string_?value\\?\":\s{0,3})?"
)
_ROLE = r"(?:user|system|assistant|human|tool|ipython|developer|model)"
TEMPLATE = (
    rf"(?:\[INST\]|(?:<\|im_start\|>|<start_of_turn>){_ROLE}|<\|start_header_id\|>{_ROLE}<\|end_header_id\|>"
    rf"|<\|{_ROLE}\|>)"
)

_SCHEMES = r"(?:Bearer|Basic|Token|ApiKey|Api-Key|Key|Negotiate|NTLM|SSWS|GenieKey|Splunk)"

# Fields by their names. What gives nothing away but itself comes first: `SECRETS` looks for no more than that.
# Each with words of which a text that it matches contains at least one, in lower case (`lowered`).
_SECRET_FIELDS = (
    (
        ("auth", "bearer"),
        rf"(?P<auth>[\w.-]{{0,40}}?auth(?:orization|entication)?{_TO}\\?[\"']?(?:{_SCHEMES}\s{{1,3}})|(?:proxy-)?authorization{_TO}"
        r"\\?[\"']?|Bearer\s+)(?P<auth_value>[a-z0-9._~+/=:-]{8,4000})"
        rf"|(?P<scheme>(?:proxy-)?authorization{_TO}\\?[\"']?(?:Digest|OAuth|AWS4-HMAC-SHA256)\s)(?P<scheme_value>[^\n]{{8,4000}})",
    ),
    (
        ("cookie",),
        rf"(?P<cookie>(?:set-)?cookies?{_TO}\\?[\"']?(?!\s*[\"'\\{{\[]))(?P<cookie_value>[^\n\"']+)"
        rf"|(?P<cookies>(?:set-)?cookies?{_BETWEEN})(?P<cookies_value>\{{[^{{}}\n]{{1,4000}}\}})",
    ),
    (
        ("curl", "wget", "etcdctl"),
        r"(?P<login_flag>(?:-u|--user)(?:[ =]|[\"'],\s?)[\"']?[^\s:\"']{1,100}:)(?P<login_flag_value>[^\s\"']{1,200})",
    ),
    (
        CORES,
        rf"(?P<flag>--{_NAMED}(?:=|[ \t]{{1,3}}|[\"'],\s?(?=[\"'])))(?P<flag_value>(?!-){_QUOTED}|(?!-){_WORD})"
        rf"|\\?[\"']?name\\?[\"']?:\s?\\?[\"']?(?P<named>{_NAMED})\\?[\"']?(?:,\s?|(?:\s|\\{{1,2}}n)\s{{0,40}})"
        rf"\\?[\"']?value\\?[\"']?:\s?(?P<named_value>{_QUOTED}|[^\s,;&\"'}}\])<\\]{{1,400}})"
        rf"|(?P<secret>{_NAMED}{_TO})(?P<secret_value>{_QUOTED}|{_WORD})"
        rf"|(?P<said>{_SPOKEN}\s{{1,3}}[\"']?)(?P<said_value>{_SPOKEN_VALUE})",
    ),
)
_OTHER_FIELDS = (
    (
        ("user", "customer", "account", "client", "tenant", "member", "session", "conversation", "chat", "uid",
         "device_id", "device-id", "deviceid", "phone", "mail", "first_name", "first-name", "firstname", "last_name",
         "last-name", "lastname", "full_name", "full-name", "fullname", "ip_address", "ip-address", "ipaddress"),
        rf"(?P<user>{_USER_NAMES}{_BETWEEN})(?P<user_value>{_QUOTED}|{_WORD})"
        rf"|(?P<spoken>(?:{_LED_BY}\s{{1,3}})?user\s{{1,3}})(?P<spoken_value>{_NAME}|[\"']{_NAME}[\"']|\\\"{_NAME}\\\")",
    ),
    (
        ("password", "publickey", "keyboard-interactive"),
        r"(?P<accepted>(?:password|publickey|keyboard-interactive/pam)\s{1,3}for\s{1,3})"
        rf"(?P<accepted_value>{_NAME})(?=\sfrom\s)",
    ),
    (
        ("prompt", "completion", "content", "question", "query", "answer", "input_", "inputs", "user_input",
         "user input", "input text", "token_ids", "output_text", "generated_text", "response_text", "utterance",
         "transcript", "user_message", "reasoning_content", "chat_history", "text_", "inputtext",
         "outputtext", "partial_json"),
        rf"(?P<prompt>(?:(?:gen_ai|llm)\.(?:\w{{1,20}}\.){{0,4}})?{_PROMPT_NAMES}{_BETWEEN})(?P<prompt_value>{_QUOTED}|{_LISTS})"
        r"|(?P<bare>(?:prompt|question|user input|input text|utterance|transcription):\s{1,3})"
        r"(?P<bare_value>[^\s\"'{\[][^\n]*)"
        r"|(?P<loose>(?:prompt|user_input|input_text|utterance|question)=)"
        r"(?P<loose_value>[^\s\"'{\[][^\n]*?)(?=\s+[\w.-]+=|\s*$)",
    ),
    (
        ("text", "input", "message", "instruction", "system", "document", "passage", "suffix", "arguments", "reasoning",
         "thinking", "refusal", "data", "output", "parts", "queries", "sentences", "title", "tools", 'q"', "q'",
         'q\\"'),
        rf"(?P<of_a_chat>(?:inputs?|outputs?):\s)(?P<of_a_chat_value>{_QUOTED})"
        rf"|(?P<doubtful>(?:{_AFTER_QUOTE}{_DOUBTFUL_NAMES}{_BETWEEN}|(?:texts?|inputs?|messages|instructions?|system)=))"
        rf"(?P<doubtful_value>{_QUOTED}|{_LISTS})",
    ),
    (
        ("value",),
        rf"(?P<turn>(?<=[\"'])?{_TURN})(?P<turn_value>{_QUOTED})",
    ),
    (
        ("[inst]", "<|", "<start_of", "human: ", "assistant: "),
        rf"(?P<template>{TEMPLATE}(?:\s|\\{{1,2}}n){{0,8}})(?P<template_value>[^\n]+?)(?=\[/INST\]|<\||<end_of_turn>|</s>|[\"']?\s*$)"
        r"|(?P<turns>(?-i:Human|Assistant):\s)(?P<turns_value>\w[^\n]*?)(?=[\"']?,?\s*$)",
    ),
    (
        ("@",),
        r"(?P<mail>[a-z0-9._%+-]{1,64}@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){0,4}\.[a-z]{2,24})\b",
    ),
)  # fmt: skip
_FIELDS = (*_SECRET_FIELDS[:-1], *_OTHER_FIELDS, _SECRET_FIELDS[-1])
FIELD_WORDS = tuple(words for words, _ in _FIELDS)
WORDS = tuple(dict.fromkeys(word for words in FIELD_WORDS for word in words))
# The name of a label or annotation whose value is a prompt, whatever stands around it.
PROMPT_NAME = re.compile(
    rf"(?:.*[_.-])?(?:{_PROMPT_NAMES.replace(_AFTER_QUOTE, '')}|texts?|inputs?|messages)", re.IGNORECASE
)
# Letters of other scripts that are i and s where case is ignored; `lower` knows the one that is k.
_FOLDED = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s"})


def _compiled(fields: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(fields)})", re.IGNORECASE)


@cache
def fields(chosen: int) -> re.Pattern[str]:
    """The fields whose bit is set in `chosen`, in the order of `FIELD_WORDS`. Few are compared far faster than all."""
    return _compiled(field for place, (_, field) in enumerate(_FIELDS) if chosen >> place & 1)


def lowered(text: str) -> str:
    """`text` in lower case, as the patterns of the fields compare it."""
    return text.lower() if text.isascii() else text.translate(_FOLDED).lower()


# What is shown to who gave it is without credentials and prompts, and keeps names, addresses and ids.
SHOWN = sum(1 << place for place, (words, _) in enumerate(_FIELDS) if not {"user", "password", "@"} & set(words))
PEM = (
    r"PRIVATE KEY",
    r"(?P<pem>-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----)"
    r"(?P<pem_value>(?:(?!-----END)[^\n]){1,4000}+(?=-----END)|(?:(?!-----END)[^\n\"'])++)",
)
# What is known by its form, behind a sign that is quickly looked for. What must not stand before it is looked at last.
FORMS = tuple(
    (re.compile(sign), re.compile(form))
    for sign, form in (
        PEM,
        (r"http", r"(?P<url>https?://[^\s\"'<>\\]{1,4000})"),
        (r" HTTP/", r"(?P<request>\"[A-Z]{3,10} )(?P<target>/[^\s\"]{0,8000})(?= HTTP/)"),
        (r" - [^\s\[\"-]", r"(?P<login> - )(?P<login_value>[^\s\[\"-]\S{0,100})(?= \[\d{1,2}/[A-Z][a-z]{2}/)"),
        (r"/home/", r"(?P<home>/home/)(?P<home_value>[^/\s\"':,]{1,64})"),
        (r"/Users/", r"(?P<home>/Users/)(?P<home_value>[^/\s\"':,]{1,64})"),
        (
            r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-",
            r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})(?![\w-])",
        ),
        (r"(?:[0-9a-fA-F]{2}[:-]){5}", rf"(?P<mac>{_MAC})(?![\w]|[:-]\w)"),
        (r"MAC=", rf"(?P<macs>MAC=)(?P<macs_value>(?:{_HEX}{{2}}:){{6,13}}{_HEX}{{2}})"),
        (r"\.\d{1,3}\.\d", r"(?P<v4>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})(?![\w-]|\.\d)"),
        (r"(?::[0-9a-fA-F]{1,4}){7}", rf"(?P<v6>(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}{_ZONE})(?![\w:.])"),
        (r"::[0-9a-fA-F]", rf"(?P<v6>{_HEX}{{0,4}}(?::{_HEX}{{0,4}}){{2,7}}{_ZONE})(?![\w:.])"),
    )
)
# What must not stand behind a letter, a digit or one of these.
STANDS_ALONE = {"uuid": "_.-", "v4": "_.-", "v6": ":_.-", "mac": ":_.-"}
ADDRESS = re.compile(rf"(?<![\d.])(?P<v4>{_V4})(?![\d.])|(?<![\w:.])(?P<v6>{_V6})(?![\w:.])", re.IGNORECASE)
VERSION = re.compile(r"(?:version|cudnn|release|\bv)[^\w\n]{0,3}\Z", re.IGNORECASE)
QUERY = re.compile(r"([?&;])([^=&;#\s]{1,200})=([^&;#\s]*)")
IDENTIFIER = re.compile(
    r"\d{3,}|[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f-]{27}|[^/@]{1,64}(?:@|%40)[^/@]{1,200}", re.IGNORECASE
)
LOGIN = re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://)[^/?#\s\"'…]{1,400}@", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,9})?[a-z/%]{0,4}")
NOTHING = ("null", "None", "true", "false", "{", "[", "-")
# What follows "user" where no person is named: `user time`, `user agent`, `user space`, `user requests`.
NO_PERSON = re.compile(
    r"time|agents?|spaces?|mode|input|ids?|names?|counts?|data|requests?|errors?|groups?|code|interface|not|is|was|are|has|have"
    r"|had|must|can|cannot|may|will|should|would|could|did|does|do|with|without|and|or|nor|but|in|on|at|to|for|from|by|of|the"
    r"|a|an|as|if|then|that|this|which|who|sessions?|messages?|prompts?|quer(?:y|ies)|content|levels?|land|threads?|process"
    r"|processes|cpu|memory|config|settings|experience|tables?|database|manual|guide|programs?|applications?|apps?|api|limits?"
    r"|quotas?|rates?|services?|accounts?|credentials?|passwords?|tokens?|keys?|home|director(?:y|ies)|profiles?|polic(?:y|ies)"
    r"|abort|cancel|stop|start|actions?|events?|feedback|roles?|types?|context|cache|buffers?|batch(?:es)?|traffic|load|latency"
    r"|callbacks?|functions?|stream|range|objects?|kernels?|files?|devices?|headers?|fields?|values?|turns?|text|side|stack|tasks?"
    r"|jobs?|calls?|sys|system|nice|idle|login|logins|logout|auth|info|root|says?|said|asks?|wants?|sees?|saw|sends?|sent|makes?"
    r"|made|gets?|got|gives?|gave|leaves?|left|comes?|came|goes|went|hits?|runs?|ran|sets?|puts?|pass|base|flow|only|again|now"
    r"|so|too|here|there|when|while|after|before|exists?|gone|unknown|new|per|via",
    re.IGNORECASE,
)
# Ends of words that are no names as a rule: user defined, user facing, user interaction, user annotations.
NO_NAME = re.compile(r".*(?:ing|ions?|ed|ments?|ness|ability|able|ly)", re.IGNORECASE)


def _needles(*, shown: bool) -> tuple[bytes, ...]:
    """Of which every line with something to redact contains at least one, on bytes, in the syntax of `re` and RE2.

    They find more lines than the patterns above, never fewer: what must stand before or behind is left out, and what
    `\\s` finds outside of ASCII is any such byte. With `shown`, those of credentials and prompts alone.
    """
    space = r"[\s\x80-\xff]"
    prompts = rf"{_PROMPT_NAMES.replace(_AFTER_QUOTE, '')}|user input|input text"
    names = rf"(?:{prompts})" if shown else rf"(?:{_USER_NAMES}|{prompts})"
    value = rf"{space}*[\[\\\"'bru]*(?:[^\s\d\\\"']|\d+[a-zA-Z_~+/=-]|\d{{6}})"  # numbers are no credentials as a rule
    fields = (
        rf"{names}(?:\\?[\"'])?{space}{{0,9}}[:=]",
        rf"{_CORES}[\w.\x80-\xff-]*(?:(?:\\?[\"']\]?)?{space}*(?:[:=>]|is{space}){value}|\\?[\"'],{space}*b?[\"'])",
        rf"--[\w.-]*{_CORES}[\w.-]*[ \t]|{_CORES}[\w.-]*\\?[\"']?(?:,|\\+n|{space}){space}*\\?[\"']?value",
        rf"[\"'](?:{_DOUBTFUL_NAMES})\\?[\"']{space}{{0,9}}[:=]{space}{{0,9}}\\?[\"'\[]|(?:texts?|inputs?|messages|instructions?|system)=[\"'\[]",
        rf"bearer{space}|[\s\"'](?:-u|--user)[ =\"']|{_SPOKEN}{space}{{1,3}}[\"']?[^\s,;&\"'}}\])<(/]*\d",
        rf"from\\?[\"']:{space}{{0,3}}\\?[\"']{SPEAKER}\\?[\"']|key\\?\":{space}{{0,3}}\\?\"(?:gen_ai|llm|traceloop|input|output)\.",
        rf"{TEMPLATE}|(?:human|assistant): |(?:inputs?|outputs?):{space}[\"']|transcription:{space}",
        r"\xe2\x84\xaa|\xc5\xbf|\xc4[\xb0\xb1]",  # letters of other scripts that are k, s and i where case is ignored
    )
    people = rf"user{space}|(?:password|publickey|/pam){space}{{1,9}}for{space}"
    if shown:
        return (*(f"(?i:{one})".encode() for one in fields), PEM[0].encode(), rb"://[^/?#\s]{1,400}@")
    forms = (
        PEM[0],
        r"@",
        r"https?://",
        r" HTTP/",
        r" - [^\s\[\"-]\S{0,400} \[",
        r"/home/|/Users/|MAC=",
        r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-",
        r"(?:[0-9a-fA-F]{2}[:-]){5}",
        r"\d\.\d{1,3}\.\d{1,3}\.\d",
        r"(?::[0-9a-fA-F]{1,4}){7}|::[0-9a-fA-F]",
    )
    return (*(f"(?i:{one})".encode() for one in (*fields, people)), *(one.encode() for one in forms))


NEEDLES = _needles(shown=False)
SHOWN_NEEDLES = _needles(shown=True)
