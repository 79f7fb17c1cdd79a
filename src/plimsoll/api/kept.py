"""Objects that are kept as a dump had them.

What controllers would delete or change at once in a cluster restored from a dump was there nevertheless: time
has passed since, the dump lacks something, or its cluster had a fault that is worth a look. Such an object
has an annotation with the reason, and controllers leave it alone until the annotation is removed.
"""

from __future__ import annotations

from plimsoll.api.meta import ObjectMeta

KEPT = "plimsoll.dev/kept"


def is_kept(metadata: ObjectMeta) -> bool:
    """Return whether controllers leave an object as it is."""
    return KEPT in metadata.annotations
