"""Log records of findings for the operator."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding

_log = logging.getLogger("plimsoll.drivers.cpu.driver")
_LEVELS = {
    FindingSeverity.INFO: logging.INFO,
    FindingSeverity.WARNING: logging.WARNING,
    FindingSeverity.ERROR: logging.ERROR,
}


def log_findings(findings: Iterable[NodeFinding]) -> None:
    """Log each finding with its fix."""
    for finding in findings:
        fix = f"; {finding.fix}" if finding.fix else ""
        _log.log(_LEVELS[finding.severity], "%s%s", finding.what, fix)
