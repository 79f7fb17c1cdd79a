"""`plimsoll check`: validation of objects as the API server does it on create."""

from plimsoll.tools.check.object_check import CheckResult, check_object
from plimsoll.tools.check.report import CheckReport, check_all, parse_release, read_kinds

__all__ = ["CheckReport", "CheckResult", "check_all", "check_object", "parse_release", "read_kinds"]
