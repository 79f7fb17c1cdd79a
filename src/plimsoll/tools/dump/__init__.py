"""`plimsoll dump`: everything the tools read, in one file, on request with other names.

START HERE: `dump.py`. `anonymize.py` replaces names by `pseudonyms.py`, field by field as `field_rules.py`
lists them.
"""

from plimsoll.tools.dump.anonymize import anonymize
from plimsoll.tools.dump.dump import (
    DumpSummary,
    collect_objects,
    format_of,
    trees_of,
    write_file,
    write_objects,
)
from plimsoll.tools.dump.pseudonyms import Pseudonyms

__all__ = [
    "DumpSummary",
    "Pseudonyms",
    "anonymize",
    "collect_objects",
    "format_of",
    "trees_of",
    "write_file",
    "write_objects",
]
