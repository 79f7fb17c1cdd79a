"""`plimsoll explain`: explain pending pods, placements and allocated devices."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from plimsoll.cli.name_completion import complete_names, complete_subject
from plimsoll.cli.options import (
    SCHEDULERS,
    OutputFormat,
    Progress,
    Where,
    ledger_options,
    output_options,
    scheduler_config_option,
    write_report,
)
from plimsoll.cli.watching import watch_cluster, watch_option

if TYPE_CHECKING:
    from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
    from plimsoll.tools.cluster_state import ClusterState
    from plimsoll.tools.report import Report

#: Minimum seconds between two reports of `-w`: explaining takes longer than adding up.
_PACE = 2.0


@click.command(name="explain")
@click.argument(
    "subject", required=False, metavar="[POD | claim/NAME | deploy/NAME]", shell_complete=complete_subject
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    shell_complete=complete_names("nodes"),
    help="Explain one node, with every failed rule.",
)
@click.option("--all", "-v", "unfolded", is_flag=True, help="Show all groups and all node names.")
@click.option(
    "--as",
    "scheduler",
    type=click.Choice(SCHEDULERS),
    help="Explain by the rules of this scheduler. [default: by spec.schedulerName]",
)
@watch_option
@scheduler_config_option
@ledger_options
@output_options
def run_explain(
    subject: str | None,
    node: str,
    unfolded: bool,
    scheduler: str | None,
    watch: bool,
    profiles: SchedulerProfile | ProfileSet | None,
    where: Where,
    form: OutputFormat,
) -> None:
    """Explain why a pod is pending or where it was placed, down to devices and numbers, with the nearest fix.

    SUBJECT is a pod (NAME, NAMESPACE/NAME or pod/NAME), a claim (claim/NAME) or a workload (deploy/NAME,
    job/NAME, and rs, sts, ds, cj, rc): its pods, or why it has none. Without it, all pending pods are listed
    by cause. The exit code is 1 if a pod is pending or missing.

    \b
    plimsoll explain trainer-0 -n ml
    plimsoll explain ml/trainer-0 --node node-17
    plimsoll explain claim/trainer-0-gpu -n ml
    plimsoll explain deploy/web -n shop
    plimsoll explain -w                   pending pods, watching for changes
    plimsoll explain -f cluster.json.gz
    """
    from plimsoll.errors import InputError
    from plimsoll.tools.cluster_state.related import WORKLOADS
    from plimsoll.tools.explain import (
        explain_claim,
        explain_node,
        explain_pending,
        explain_pod,
        explain_workload,
        read_events,
    )
    from plimsoll.tools.explain.targets import read_subject
    from plimsoll.tools.pod_schedulers import find_model

    if scheduler:
        profiles = find_model(scheduler).settings(profiles)

    def report(cluster_state: ClusterState) -> tuple[Report, bool]:
        """Return the report, and whether something is pending."""
        if scheduler:
            cluster_state = find_model(scheduler).cluster_state(cluster_state)
        if not subject:
            pending = explain_pending(cluster_state, namespace=where.namespace, settings=profiles)
            return pending, bool(pending.count)
        kind, namespace, name = read_subject(subject, where.namespace)
        if kind != "pod" and node:
            raise InputError("--node is for pods: plimsoll explain POD --node NAME")
        if kind in WORKLOADS:
            workload = explain_workload(cluster_state, kind, name, namespace, profiles)
            return workload, workload.is_pending
        if kind == "claim":
            claim = cluster_state.claim(name, namespace)
            return explain_claim(cluster_state, claim, unfolded=unfolded), claim.status.allocation is None
        pod = cluster_state.pod(name, namespace)
        if node:
            on_node = explain_node(cluster_state, pod, node, settings=profiles)
            return on_node, not on_node.fits
        explanation = explain_pod(cluster_state, pod, settings=profiles, unfolded=unfolded)
        return explanation, not pod.spec.node_name

    if node and not subject:
        raise InputError("--node needs a pod: plimsoll explain POD --node NAME")
    if watch and subject and read_subject(subject)[0] in WORKLOADS:
        raise InputError("-w is for pods and claims, or for all pending pods")
    if watch:
        title = f"plimsoll explain {subject or ''}".rstrip()
        watch_cluster(where, form, title, lambda cluster_state: report(cluster_state)[0], _PACE)
        return
    cluster_state = where.cluster_state()
    if subject:
        read_events(where.source(), cluster_state, *read_subject(subject, where.namespace))
    with Progress() as progress:
        cluster_state.compute_ledgers(progress.tick)
        progress.tick("evaluating nodes", 0, 0)
        made, is_pending = report(cluster_state)
    write_report(made, form)
    sys.exit(1 if is_pending else 0)
