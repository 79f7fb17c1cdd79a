"""A read-only check of a cluster: what is past its line, allocated twice, left behind or set up wrongly.

START HERE: `audit.py`. `checks/` are the questions, `facts.py` what they look things up in, `report.py` the
answer for people and programs, `sarif.py` and `junit.py` the same for pipelines, `baseline.py` a former one.
"""

from plimsoll.tools.audit.audit import audit, choose_checks, find_check
from plimsoll.tools.audit.checks import CHECKS
from plimsoll.tools.audit.findings import AuditFinding, AuditSeverity, Check
from plimsoll.tools.audit.report import AuditReport

__all__ = [
    "CHECKS",
    "AuditFinding",
    "AuditReport",
    "AuditSeverity",
    "Check",
    "audit",
    "choose_checks",
    "find_check",
]
