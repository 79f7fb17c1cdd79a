"""Audit report as JUnit XML.

One test case per finding, failed if its severity fails the audit, and a passing one for each check without
findings; checks that were not run are skipped.
"""

from __future__ import annotations

from xml.etree import ElementTree

from plimsoll.tools.audit.report import AuditReport
from plimsoll.tools.colors import printable
from plimsoll.tools.findings import Finding, Severity


def as_junit(report: AuditReport, level: Severity | None) -> str:
    """Render the report; `level` is the lowest severity that is a failure (None: none)."""
    suite = ElementTree.Element("testsuite", name="plimsoll audit")
    by_check: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_check.setdefault(finding.id, []).append(finding)
    failures = tests = 0
    for check in report.checks:
        classname = f"{check.id}.{check.name}"
        found = by_check.get(check.id, [])
        tests += max(1, len(found))
        if not found:
            ElementTree.SubElement(suite, "testcase", classname=classname, name=check.title)
        for finding in found:
            failed = level is not None and finding.severity.reaches(level)
            failures += failed
            _add(suite, classname, finding, failed)
    for each in report.skipped:
        tests += 1
        case = ElementTree.SubElement(suite, "testcase", classname=f"{each.id}.{each.name}", name=each.name)
        ElementTree.SubElement(case, "skipped", message=_sanitize(each.why))
    counts = {"tests": tests, "failures": failures, "errors": 0, "skipped": len(report.skipped)}
    for name, count in counts.items():
        suite.set(name, str(count))
    root = ElementTree.Element("testsuites", name="plimsoll")
    for name, count in counts.items():
        root.set(name, str(count))
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(suite: ElementTree.Element, classname: str, finding: Finding, failed: bool) -> None:
    name = finding.subject + (f" {finding.key}" if finding.key else "")
    case = ElementTree.SubElement(suite, "testcase", classname=classname, name=_sanitize(name))
    text = _sanitize("\n".join([finding.message, *finding.evidence, f"{finding.fix_label}: {finding.fix}"]))
    if failed:
        kind = finding.severity.value
        element = ElementTree.SubElement(case, "failure", type=kind, message=_sanitize(finding.message))
    else:
        element = ElementTree.SubElement(case, "system-out")
    element.text = text


def _sanitize(text: str) -> str:
    """Replace characters that are not printable or not valid in XML."""
    return "\n".join(map(printable, text.split("\n")))
