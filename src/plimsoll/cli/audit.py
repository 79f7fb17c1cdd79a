"""`plimsoll audit`: find accounting and allocation errors of a cluster.

Exit code 1 for findings of the severity given by `--fail-on` or higher, else 0.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plimsoll.cli.name_completion import complete_checks
from plimsoll.cli.options import (
    FILE,
    OutputFormat,
    Progress,
    Where,
    ledger_options,
    output_options_and,
    write_report,
)
from plimsoll.cli.watching import watch_cluster, watch_option
from plimsoll.cli.where import keep_until_exit

if TYPE_CHECKING:
    from plimsoll.tools.audit import AuditReport
    from plimsoll.tools.cluster_state import ClusterState
    from plimsoll.tools.findings import Severity

#: Minimum seconds between two reports of `-w`.
_PACE = 5.0
_LEVELS = ["error", "warning", "info", "never"]


@click.command(name="audit")
@ledger_options
@output_options_and("sarif", "junit")
@click.option(
    "--fail-on",
    type=click.Choice(_LEVELS),
    default="error",
    show_default=True,
    help="Exit with code 1 for findings of this severity or higher.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="CHECK",
    shell_complete=complete_checks,
    help="Run only this check (ID or name). Repeatable.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="CHECK",
    shell_complete=complete_checks,
    help="Skip this check. Repeatable.",
)
@click.option(
    "--baseline",
    type=FILE,
    metavar="FILE",
    help="Earlier report (-o json) whose findings are ignored.",
)
@click.option("--list", "listing", is_flag=True, help="List the checks and exit.")
@click.option(
    "--explain",
    metavar="CHECK",
    default="",
    shell_complete=complete_checks,
    help="Describe a check and exit.",
)
@watch_option
@click.option("--now", default="", hidden=True, help="Current time, for example 2026-01-31T12:00:00Z.")
def run_audit(
    where: Where,
    form: OutputFormat,
    fail_on: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    baseline: Path | None,
    listing: bool,
    explain: str,
    now: str,
    watch: bool,
) -> None:
    """Check a cluster or dump for overcommitted nodes, double allocations, leaks and misconfiguration.

    Nothing is written to the cluster. Exit code 0: no findings of the --fail-on severity or higher; 1: there
    are some; 2: the check could not run.

    \b
    plimsoll audit
    plimsoll audit -f cluster.json.gz
    plimsoll audit --fail-on warning -o sarif > audit.sarif
    plimsoll audit -o json > known.json; plimsoll audit --baseline known.json
    plimsoll audit --explain PLM001
    """
    from plimsoll.tools import audit as auditing
    from plimsoll.tools.audit import baseline as former
    from plimsoll.tools.audit import check_list
    from plimsoll.tools.findings import Severity

    if listing:
        write_report(check_list.CheckListing(auditing.CHECKS), form)
        return
    if explain:
        write_report(check_list.CheckExplanation(auditing.find_check(explain)), form)
        return
    checks = auditing.choose_checks(only, skip)
    read_at = check_list.read_now(now)
    known = former.read_baseline(baseline) if baseline is not None else None

    def examine(cluster_state: ClusterState) -> AuditReport:
        with Progress() as progress:
            cluster_state.compute_ledgers(progress.tick)
            facts = auditing.find_facts(cluster_state, now=read_at)
            if not watch:
                keep_until_exit(facts)
            report = auditing.audit_facts(facts, checks=checks, tick=progress.tick)
        if where.namespace:
            report = report.within(where.namespace)
        return report if known is None else report.beyond(known)

    if watch:
        if form.output in ("sarif", "junit"):
            raise click.UsageError(f"-w and -o {form.output} cannot be combined")
        watch_cluster(where, form, "plimsoll audit", examine, _PACE)
        return
    report = examine(where.cluster_state())
    level = None if fail_on == "never" else Severity(fail_on)
    _write(report, form, level, where.files)
    sys.exit(1 if report.fails(level) else 0)


def _write(report: AuditReport, form: OutputFormat, level: Severity | None, files: tuple[str, ...]) -> None:
    from plimsoll.tools.audit.junit import as_junit
    from plimsoll.tools.audit.sarif import as_sarif

    if form.output == "sarif":
        click.echo(json.dumps(as_sarif(report, files), indent=2))
    elif form.output == "junit":
        click.echo(as_junit(report, level), nl=False)
    else:
        write_report(report, form)
