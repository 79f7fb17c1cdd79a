"""`plimsoll diff`: compare two dumps, or a dump and the cluster now."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from dataclasses import replace

import click

from plimsoll.cli.options import OutputFormat, Where, ledger_options, output_options, write_report


@click.command(name="diff")
@click.argument("old")
@click.argument("new", default="")
@click.option("--now", default="", hidden=True, help="Current time, for example 2026-01-31T12:00:00Z.")
@ledger_options
@output_options
def run_diff(old: str, new: str, now: str, where: Where, form: OutputFormat) -> None:
    """Show what changed: nodes, devices, claims, pods, charges and audit findings.

    OLD and NEW are dumps (files, directories or archives). Without NEW, the cluster of the kubeconfig is
    compared as it is now, or the files of -f. Nothing is written to the cluster. Exit code 0: no differences;
    1: there are some; 2: the comparison could not run.

    \b
    plimsoll dump --out monday.json.gz
    plimsoll diff monday.json.gz
    plimsoll diff monday.json.gz friday.json.gz
    plimsoll diff monday.json.gz friday.json.gz -n team-a -o wide
    """
    from plimsoll.errors import ConfigError
    from plimsoll.tools.audit.check_list import read_now
    from plimsoll.tools.diff import DiffReport, compare_clusters

    if new and where.files:
        raise ConfigError("NEW and -f cannot be combined: give one of them")
    read_at = read_now(now)
    before = replace(where, files=(old,), kubeconfig=None, context="").cluster_state()
    after = (replace(where, files=(new,), kubeconfig=None, context="") if new else where).cluster_state()
    changes = compare_clusters(before, after, now=read_at, namespace=where.namespace)
    write_report(DiffReport(changes, before.origin, after.origin), form)
    sys.exit(1 if changes else 0)
