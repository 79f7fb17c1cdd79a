"""`plimsoll audit`: what is wrong with a cluster, and what mends it.

Owns its arguments and exit codes: 1 if there is a finding as bad as `--fail-on` says, 0 if not.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plimsoll.cli.options import Form, Where, cluster_options, output_options_and, write_report

if TYPE_CHECKING:
    from plimsoll.tools.audit import AuditReport, Severity

_LEVELS = ["error", "warning", "info", "never"]


@click.command(name="audit")
@cluster_options
@output_options_and("sarif", "junit")
@click.option(
    "--fail-on",
    type=click.Choice(_LEVELS),
    default="error",
    show_default=True,
    help="The exit code is 1 from this severity on.",
)
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check, by id or name; repeatable.")
@click.option("--skip", multiple=True, metavar="CHECK", help="Not this check; repeatable.")
@click.option(
    "--baseline",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A former report (-o json): what it has found is known, only the rest counts.",
)
@click.option("--list", "listing", is_flag=True, help="List the checks, and ask nothing.")
@click.option("--explain", metavar="CHECK", default="", help="Say what a check means, and ask nothing.")
@click.option("--now", default="", hidden=True, help="The time, as 2026-01-31T12:00:00Z.")
def run_audit(
    where: Where,
    form: Form,
    fail_on: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    baseline: Path | None,
    listing: bool,
    explain: str,
    now: str,
) -> None:
    """Check a cluster or a dump: what is past its line, allocated twice, left behind or set up wrongly.

    Nothing is written to the cluster. The exit code is 0 if all is well, 1 if there is a finding as bad as
    --fail-on says, 2 if the question could not be asked.

    \b
    plimsoll audit
    kubectl get nodes,pods,resourceclaims,resourceslices,deviceclasses -A -o yaml | plimsoll audit -f -
    plimsoll audit --fail-on warning -o sarif > audit.sarif
    plimsoll audit -o json > known.json; plimsoll audit --baseline known.json
    plimsoll audit --explain PLM001
    """
    from plimsoll.tools import audit as auditing
    from plimsoll.tools.audit import baseline as former
    from plimsoll.tools.audit import words

    if listing:
        write_report(words.Listing(auditing.CHECKS), form)
        return
    if explain:
        write_report(words.Explanation(auditing.find_check(explain)), form)
        return
    checks = auditing.choose_checks(only, skip)
    moment = words.read_now(now)
    known = former.read_baseline(baseline) if baseline is not None else None
    report = auditing.audit(where.cluster_state(), checks=checks, now=moment)
    if where.namespace:
        report = report.within(where.namespace)
    if known is not None:
        report = report.beyond(known)
    level = None if fail_on == "never" else auditing.Severity(fail_on)
    _write(report, form, level, where.files)
    sys.exit(1 if report.fails(level) else 0)


def _write(report: AuditReport, form: Form, level: Severity | None, files: tuple[str, ...]) -> None:
    from plimsoll.tools.audit.junit import as_junit
    from plimsoll.tools.audit.sarif import as_sarif

    if form.output == "sarif":
        click.echo(json.dumps(as_sarif(report, files), indent=2))
    elif form.output == "junit":
        click.echo(as_junit(report, level), nl=False)
    else:
        write_report(report, form)
