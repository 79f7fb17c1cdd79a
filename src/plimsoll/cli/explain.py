"""`plimsoll explain`: explain pending pods, placements and allocated devices."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from plimsoll.cli.options import (
    OutputFormat,
    Progress,
    Where,
    ledger_options,
    output_options,
    scheduler_config_option,
    write_report,
)

if TYPE_CHECKING:
    from plimsoll.scheduler.profile import ProfileSet
    from plimsoll.tools.report import Report


@click.command(name="explain")
@click.argument("subject", required=False, metavar="[POD | claim/NAME]")
@click.option("--node", default="", metavar="NAME", help="Explain one node, with every failed rule.")
@click.option("--all", "-v", "unfolded", is_flag=True, help="Show all groups and all node names.")
@scheduler_config_option
@ledger_options
@output_options
def run_explain(
    subject: str | None,
    node: str,
    unfolded: bool,
    profiles: ProfileSet | None,
    where: Where,
    form: OutputFormat,
) -> None:
    """Explain why a pod is pending or where it was placed, down to devices and numbers, with the nearest fix.

    SUBJECT is a pod (NAME, NAMESPACE/NAME or pod/NAME) or a claim (claim/NAME). Without it, all pending
    pods are listed by reason. The exit code is 1 if a pod is pending.

    \b
    plimsoll explain trainer-0 -n ml
    plimsoll explain ml/trainer-0 --node node-17
    plimsoll explain claim/trainer-0-gpu -n ml
    kubectl get nodes,pods,resourceslices,resourceclaims,deviceclasses -A -o yaml | plimsoll explain -f -
    """
    from plimsoll.errors import InputError
    from plimsoll.tools.explain import explain_claim, explain_node, explain_pending, explain_pod
    from plimsoll.tools.explain.targets import read_subject

    cluster_state = where.cluster_state()
    report: Report
    with Progress() as progress:
        progress.tick("evaluating nodes", 0, 0)
        if not subject:
            if node:
                raise InputError("--node needs a pod: plimsoll explain POD --node NAME")
            pending = explain_pending(cluster_state, namespace=where.namespace, settings=profiles)
            report, waits = pending, bool(pending.count)
        else:
            kind, namespace, name = read_subject(subject, where.namespace)
            if kind == "claim":
                if node:
                    raise InputError("--node is for pods: plimsoll explain POD --node NAME")
                claim = cluster_state.claim(name, namespace)
                report = explain_claim(cluster_state, claim, unfolded=unfolded)
                waits = claim.status.allocation is None
            elif node:
                pod = cluster_state.pod(name, namespace)
                on_node = explain_node(cluster_state, pod, node, settings=profiles)
                report, waits = on_node, not on_node.fits
            else:
                pod = cluster_state.pod(name, namespace)
                report = explain_pod(cluster_state, pod, settings=profiles, unfolded=unfolded)
                waits = not pod.spec.node_name
    write_report(report, form)
    sys.exit(1 if waits else 0)
