"""Numbers out of what a server says of its model, so that it can be compared with a healthy time."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.evidence.model import Evidence, Reading

# Bits of the number types that frameworks name; a name that is not here tells nothing.
BITS: Mapping[str, float] = {
    **dict.fromkeys(("fp64", "float64", "double"), 64.0),
    **dict.fromkeys(("fp32", "float32", "float", "tf32"), 32.0),
    **dict.fromkeys(("bf16", "bfloat16", "fp16", "float16", "half"), 16.0),
    **dict.fromkeys(("int8", "qint8", "fp8", "float8"), 8.0),
    **dict.fromkeys(("int4", "fp4"), 4.0),
}
FUSED: Mapping[str, float] = {
    **dict.fromkeys(("sdpa", "flash", "flash2", "flash3", "flash_attention_2", "efficient", "xformers", "cudnn"), 1.0),
    **dict.fromkeys(("naive", "eager", "math"), 0.0),
}
WORDS = (("model.dtype", "model.bits", BITS), ("model.attention", "model.attention_fused", FUSED))


def model_words(evidence: Evidence) -> Evidence:
    """`model.bits` of `model.dtype` and `model.attention_fused` of `model.attention`, where the word is known."""
    found: list[Reading] = []
    for source, signal, meaning in WORDS:
        told = {one.subject for one in evidence.readings_by_signal.get(signal, ())}
        for one in evidence.readings_by_signal.get(source, ()):
            value = meaning.get(str(one.value).lower().removeprefix("torch."))
            if value is not None and one.subject not in told:
                told.add(one.subject)
                found.append(Reading(signal, one.subject, value, one.origin, one.window, (), f"{source} {one.value}"))
    return Evidence(readings=tuple(found))
