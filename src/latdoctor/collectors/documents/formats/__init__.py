"""All formats, in the order in which they are tried. A new format is a module and a line here."""

from latdoctor.collectors.documents.formats import nvidia_smi_query
from latdoctor.collectors.documents.text_format import TextFormat

ALL: tuple[TextFormat, ...] = (nvidia_smi_query.FORMAT,)
# Those that may be parts of a file, and those that are always a file of their own.
FORMATS = tuple(one for one in ALL if not one.whole)
WHOLE = tuple(one for one in ALL if one.whole)
