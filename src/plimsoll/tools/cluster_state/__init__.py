"""Cluster state: the objects of one cluster at one time, from files or an API server; input of all tools.

START HERE: `cluster_state.py`. `kinds.py` lists the kinds that are read, `objects.py` stores them, `live.py`
and `files.py` read them, and `source.py` selects between the two.
"""

from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap
from plimsoll.tools.cluster_state.source import Source, read_cluster_state

__all__ = ["ClusterObjects", "ClusterState", "Gap", "Source", "read_cluster_state"]
