"""Loading of manifests and dumps into a cluster.

START HERE: `restore.py` stores the objects of dumps, `load.py` applies manifests. `completion.py` adds what
dumps leave out, `order.py` sorts manifests, `apply.py` writes one object.
"""

from plimsoll.up.manifests.apply import Applier
from plimsoll.up.manifests.load import load
from plimsoll.up.manifests.load_result import LoadResult
from plimsoll.up.manifests.restore import restore

__all__ = ["Applier", "LoadResult", "load", "restore"]
