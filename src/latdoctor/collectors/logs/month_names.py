"""Months by their names, as logs of localised systems write them: `Mär`, `févr.`, `mayo`, `5月`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

# Full names from January to December. Abbreviations are prefixes of three letters or more.
_NAMES = {
    "English": "january february march april may june july august september october november december",
    "German": "januar februar märz april mai juni juli august september oktober november dezember",
    "Austrian": "jänner feber märz april mai juni juli august september oktober november dezember",
    "French": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "Spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "Portuguese": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "Italian": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "Dutch": "januari februari maart april mei juni juli augustus september oktober november december",
    "Swedish": "januari februari mars april maj juni juli augusti september oktober november december",
    "Norwegian": "januar februar mars april mai juni juli august september oktober november desember",
    "Danish": "januar februar marts april maj juni juli august september oktober november december",
    "Polish": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "Czech": "ledna února března dubna května června července srpna září října listopadu prosince",
    "Hungarian": "január február március április május június július augusztus szeptember október november december",
    "Romanian": "ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie decembrie",
    "Turkish": "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",
    "Russian": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "Russian, nominative": "январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь декабрь",
    "Ukrainian": "січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
}
# Abbreviations that are no prefixes of the names, and the Finnish ones, which are used as they are.
_MORE = {
    "mrt": 3, "mrz": 3, "juil": 7, "cvn": 6, "cvc": 7, "sept": 9, "tammi": 1, "helmi": 2, "maalis": 3, "huhti": 4,
    "touko": 5, "kesa": 6, "heina": 7, "elo": 8, "syys": 9, "loka": 10, "marras": 11, "joulu": 12,
}  # fmt: skip
_EAST_ASIAN = re.compile(r"(\d{1,2})(?:月|월)")

# Pattern of a word that may name a month, with the dot of an abbreviation.
MONTH = r"(?:\d{1,2}(?:月|월)|[^\W\d_]{3,12}\.?)"


def month_number(word: str) -> int | None:
    """The month from 1 to 12 that `word` names in any case, whole or abbreviated; None if it names none."""
    if found := _EAST_ASIAN.fullmatch(word):
        number = int(found[1])
        return number if 1 <= number <= 12 else None
    return _months().get(_plain(word))


def _plain(word: str) -> str:
    """`Août.` → `aout`."""
    decomposed = unicodedata.normalize("NFKD", word.rstrip(".").casefold().replace("ı", "i"))
    return "".join(char for char in decomposed if not unicodedata.combining(char))


@cache
def _months() -> dict[str, int]:
    known: dict[str, int] = {}
    ambiguous: set[str] = set()
    for prefix, month in _prefixes():
        if known.setdefault(prefix, month) != month:
            ambiguous.add(prefix)
    whole = {_plain(name): month for names in _NAMES.values() for month, name in enumerate(names.split(), 1)}
    return {word: month for word, month in known.items() if word not in ambiguous} | whole | _MORE


def _prefixes() -> Iterator[tuple[str, int]]:
    for names in _NAMES.values():
        for month, name in enumerate(names.split(), 1):
            plain = _plain(name)
            yield from ((plain[:length], month) for length in range(3, len(plain) + 1))
