"""All formats, in the order in which they are tried. A new format is a module and a line here."""

from latdoctor.collectors.documents.formats import (
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_query,
    nvidia_smi_table,
    nvidia_smi_xml,
)
from latdoctor.collectors.documents.text_format import TextFormat

ALL: tuple[TextFormat, ...] = (
    nvidia_smi_csv.FORMAT,
    nvidia_smi_dmon.FORMAT,
    nvidia_smi_query.FORMAT,
    nvidia_smi_table.FORMAT,
    nvidia_smi_xml.FORMAT,
)
# Those that may be parts of a file, and those that are always a file of their own.
FORMATS = tuple(one for one in ALL if not one.whole)
WHOLE = tuple(one for one in ALL if one.whole)
