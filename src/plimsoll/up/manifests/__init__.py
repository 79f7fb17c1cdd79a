"""Manifests and dumps brought into a cluster.

START HERE: `load.py`. `order.py` says what comes first, `restore.py` what of an object can be brought back,
`apply.py` writes one object.
"""

from plimsoll.up.manifests.apply import Applier
from plimsoll.up.manifests.load import Loaded, load

__all__ = ["Applier", "Loaded", "load"]
