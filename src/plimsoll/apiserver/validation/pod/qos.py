"""QoS class in a pod's status.

The server computes it when a pod is created. With the gate DRANodeAllocatableResourcesQoS it follows the
charges in the status, which a scheduler writes before it binds the pod and clears if binding fails; apart
from that it never changes, as upstream.
"""

from __future__ import annotations

from plimsoll.api.gates import Gates
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.object_trees import subtree
from plimsoll.apiserver.validation.pod.charges import has_same_charges
from plimsoll.apiserver.validation.write_context import WriteContext
from plimsoll.ledger.qos import BEST_EFFORT, claimed_qos, qos_class


def compute_qos(pod: View, gates: Gates) -> str:
    """Compute the class from the spec, and from the charges if they count."""
    found = qos_class(pod.spec, pod_level=gates.enabled("PodLevelResources"))
    if found == BEST_EFFORT and gates.enabled("DRANodeAllocatableResourcesQoS"):
        return claimed_qos(pod)
    return found


def qos_after_status_write(write: WriteContext[View]) -> str:
    """Return the class that a pod has after a write of its status."""
    before = subtree(write.old_tree, "status").get("qosClass", "")
    if not isinstance(before, str):
        return ""
    unchanged = has_same_charges(write.tree, write.old_tree)
    if unchanged or not write.gates.enabled("DRANodeAllocatableResourcesQoS"):
        return before
    return compute_qos(write.new, write.gates)
