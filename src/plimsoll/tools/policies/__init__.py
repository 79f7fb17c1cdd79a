"""`plimsoll policies`: the cluster under each of the four accounting policies. `comparison.py` computes,
`report.py` renders.
"""

from plimsoll.tools.policies.comparison import compare_policies
from plimsoll.tools.policies.report import AS_IS, COLUMNS, POLICIES, PoliciesReport

__all__ = ["AS_IS", "COLUMNS", "POLICIES", "PoliciesReport", "compare_policies"]
