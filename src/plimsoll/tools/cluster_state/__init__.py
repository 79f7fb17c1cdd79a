"""A cluster at one moment, wherever it is read from: what every question is asked of.

START HERE: `cluster_state.py`. `kinds.py` says what is read, `objects.py` keeps it, `live.py` and `files.py`
get it, `source.py` chooses between the two.
"""

from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap
from plimsoll.tools.cluster_state.source import Source, read_cluster_state

__all__ = ["ClusterObjects", "ClusterState", "Gap", "Source", "read_cluster_state"]
