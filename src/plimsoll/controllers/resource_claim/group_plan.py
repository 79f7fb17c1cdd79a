"""Claims of a PodGroup: generated from templates and recorded in its status (DRAWorkloadResourceClaims).

As in kube-controller-manager's resource claim controller: one claim per template entry, named after the group
and the entry and owned by the group. The pods of the group refer to it by the same entry; `pod_plan.py`
records its name in their status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api.meta import ObjectReference
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.scheduling import PodGroup
from plimsoll.client.endpoints import POD_GROUPS
from plimsoll.client.event_recorder import WARNING, EventRecord
from plimsoll.controllers.actions import EMPTY_PLAN, Action, ActionPlan
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.resource_claim.pod_plan import COMPONENT
from plimsoll.controllers.resource_claim.template_claims import (
    FAILED_CREATION,
    by_entry,
    create_from_template,
    missing_template,
    record_names,
)


def plan_group(
    group: PodGroup, owned: Iterable[ResourceClaim], templates: Mapping[str, ClaimTemplateView]
) -> ActionPlan:
    """Plan for a PodGroup; `owned` are the claims that name it as their owner.

    Claims are created first; once they are among `owned`, their names are recorded.
    """
    if group.metadata.deletion_timestamp is not None:
        return EMPTY_PLAN
    owned = list(owned)
    existing, owned_names = by_entry(owned), {claim.metadata.name for claim in owned}
    recorded = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
    actions: list[Action] = []
    names: dict[str, str | None] = {}
    for entry in group.spec.resource_claims:
        template_name = entry.resource_claim_template_name
        if template_name is None:
            continue
        if recorded.get(entry.name) in owned_names:
            names[entry.name] = recorded[entry.name]
            continue
        claim = existing.get(entry.name)
        if claim is not None or (entry.name in recorded and recorded[entry.name] is None):
            names[entry.name] = claim.metadata.name if claim is not None else None
            continue
        template = templates.get(template_name)
        if template is None:
            message = f"PodGroupResourceClaim {entry.name}: {missing_template(template_name)}"
            return ActionPlan((*actions, failed_event(group, message)), error=message)
        actions.append(create_from_template(POD_GROUPS, group.metadata, entry.name, template))
    if actions:
        return ActionPlan(tuple(actions))
    if any(name not in recorded or recorded[name] != claim for name, claim in names.items()):
        is_unsure = len(existing) < len(owned)
        return ActionPlan((record_names(POD_GROUPS, group.metadata, names, is_unsure=is_unsure),))
    return EMPTY_PLAN


def failed_event(group: PodGroup, message: str) -> EventRecord:
    """Build the event for a claim that could not be created."""
    reference = ObjectReference.to(group.metadata, POD_GROUPS.kind, POD_GROUPS.api_version)
    return EventRecord(reference, FAILED_CREATION, message, COMPONENT, WARNING)
