"""`plimsoll diff`: what changed between two states of a cluster.

START HERE: `diff.py`. `report.py` renders the result.
"""

from plimsoll.tools.diff.diff import ObjectDifference, StateChanges, compare_clusters
from plimsoll.tools.diff.report import DiffReport

__all__ = ["DiffReport", "ObjectDifference", "StateChanges", "compare_clusters"]
