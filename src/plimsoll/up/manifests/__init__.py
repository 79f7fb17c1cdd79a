"""Loading of manifests and dumps into a cluster.

START HERE: `load.py`. `order.py` sorts the objects, `restore.py` prepares dumped objects, `apply.py` writes
one object.
"""

from plimsoll.up.manifests.apply import Applier
from plimsoll.up.manifests.load import LoadResult, load

__all__ = ["Applier", "LoadResult", "load"]
