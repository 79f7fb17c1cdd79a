"""Audit report as SARIF 2.1.0, for code scanning and editors.

One run, one rule per check, one result per finding. Cluster objects are logical locations; if one file was
audited, it is the physical location. Fingerprints are derived from check, subject and key.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from plimsoll.tools.audit.findings import Check
from plimsoll.tools.audit.report import AuditReport
from plimsoll.tools.findings import Finding, Severity

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def as_sarif(report: AuditReport, files: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report as a SARIF tree."""
    indexes = {check.id: index for index, check in enumerate(report.checks)}
    uri = _uri(files[0]) if len(files) == 1 and files[0] != "-" else ""
    results = [_result(finding, indexes, uri, "new") for finding in report.findings]
    results += [_result(finding, indexes, uri, "unchanged") for finding in report.known]
    if not report.known:
        for result in results:
            del result["baselineState"]
    skipped = [
        {"level": "note", "message": {"text": f"not checked: {each.why}"}, "descriptor": {"id": each.id}}
        for each in report.skipped
    ]
    driver = {
        "name": "plimsoll",
        "version": version("plimsoll"),
        "semanticVersion": version("plimsoll"),
        "rules": [_rule(check) for check in report.checks],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
        "invocations": [{"executionSuccessful": True, "toolConfigurationNotifications": skipped}],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "name": "".join(word.capitalize() for word in check.name.split("-")),
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": check.explanation},
        "help": {"text": f"Fix: {check.fix}."},
        "defaultConfiguration": {"level": LEVELS[check.severity]},
    }


def _result(finding: Finding, indexes: dict[str, int], uri: str, state: str) -> dict[str, Any]:
    fix = f"{finding.fix_label.capitalize()}: {finding.fix}"
    text = "\n".join([f"{finding.subject}: {finding.message}", *finding.evidence, fix])
    location: dict[str, Any] = {
        "logicalLocations": [
            {
                "name": finding.subject.rpartition("/")[2],
                "fullyQualifiedName": finding.subject,
                "kind": "resource",
            }
        ]
    }
    if uri:
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    mark = sha256("\0".join(finding.identity).encode("utf-8", "replace")).hexdigest()
    return {
        "ruleId": finding.id,
        "ruleIndex": indexes[finding.id],
        "level": LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"plimsollFinding/v1": mark},
        "baselineState": state,
    }


def _uri(path: str) -> str:
    """Return the URI of a file; relative if the path was."""
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
