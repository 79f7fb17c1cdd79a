"""`plimsoll audit`: read-only checks for overcommitted nodes, double allocation, leftovers and
misconfiguration.

START HERE: `audit.py`. `checks/` has the checks, `checks.toml` their texts, `facts.py` their shared
lookups, `report.py` the report, `sarif.py` and `junit.py` its CI formats, and `baseline.py` reads an
earlier report.
"""

from plimsoll.tools.audit.audit import audit, audit_facts, choose_checks, find_check, find_facts
from plimsoll.tools.audit.checks import CHECKS
from plimsoll.tools.audit.findings import Check
from plimsoll.tools.audit.report import AuditReport

__all__ = [
    "CHECKS",
    "AuditReport",
    "Check",
    "audit",
    "audit_facts",
    "choose_checks",
    "find_check",
    "find_facts",
]
