"""Node authorizer: rules beyond RBAC for users `system:node:NAME` of the group `system:nodes`.

A node reads only objects related to it (`node_graph.py`), lists only what it selects by its own name, and
accesses only its own Node, CSINode, lease and slices. Its writes are also checked by
`admission/node_restriction.py`.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.auth.attributes import READ_VERBS, Attributes, Decision, StoreReader
from plimsoll.apiserver.auth.default_roles import NODE_RULES
from plimsoll.apiserver.auth.node_graph import PODS, NodeGraph
from plimsoll.apiserver.auth.rbac_rules import GrantIndex, RoleGrant
from plimsoll.apiserver.storage.records import ObjectKey

LEASE_NAMESPACE = "kube-node-lease"
_POD_SUBRESOURCES = frozenset({("status", "update"), ("status", "patch"), ("eviction", "create")})
_OWN_VERBS = frozenset({"get", "create", "update", "patch", "delete"})
_ALLOWED = Decision(True, "")
_NO_OPINION = Decision(False, "")


def _deny(reason: str) -> Decision:
    return Decision(False, reason)


class NodeAuthorizer:
    """Authorizer of nodes; what it does not allow, roles bound to the node still may."""

    def __init__(self, reader: StoreReader) -> None:
        self.graph = NodeGraph(reader)
        self._rules = GrantIndex(RoleGrant(rule) for rule in NODE_RULES)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Update the graph after a write."""
        self.graph.observe(key, tree)

    def authorize(self, node: str, attributes: Attributes) -> Decision:
        """Decide whether the Node authorizer allows a request of a node."""
        if not node:
            return _deny(f'unknown node for user "{attributes.user.name}"')
        if not attributes.path:
            special = _SPECIAL.get((attributes.group, attributes.resource))
            if special is not None:
                return special(self, node, attributes)
        return _ALLOWED if self._rules.find(attributes) else _NO_OPINION

    def _check_related(self, node: str, attributes: Attributes) -> Decision:
        if not attributes.name:
            return _deny("No Object name found")
        resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
        if self.graph.is_related(node, resource, attributes.namespace, attributes.name):
            return _ALLOWED
        return _deny(f"no relationship found between node '{node}' and this object")

    def _get(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb != "get":
            return _deny("can only get individual resources of this type")
        if attributes.subresource:
            return _deny("cannot get subresource")
        return self._check_related(node, attributes)

    def _read(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in READ_VERBS:
            return _deny("can only read resources of this type")
        if attributes.subresource:
            return _deny("cannot read subresource")
        if not attributes.namespace:
            return _deny("can only read namespaced object of this type")
        return self._check_related(node, attributes)

    def _volume_claim(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource != "status":
            return self._get(node, attributes)
        if attributes.verb not in ("update", "patch"):
            return _deny("can only get/update/patch this type")
        return self._check_related(node, attributes)

    def _account(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb == "get" and not attributes.subresource:
            return self._read(node, attributes)
        if attributes.verb != "create" or not attributes.name:
            return _deny("can only create tokens for individual service accounts")
        if attributes.subresource != "token":
            return _deny("can only create token subresource of serviceaccount")
        return self._check_related(node, attributes)

    def _lease(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _OWN_VERBS:
            return _deny("can only get, create, update, patch, or delete a node lease")
        if attributes.namespace != LEASE_NAMESPACE:
            return _deny(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        # The name of a created object is in the body: `admission/node_restriction.py` checks it.
        if attributes.verb != "create" and attributes.name != node:
            return _deny("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def _csi_node(self, node: str, attributes: Attributes) -> Decision:
        if attributes.verb not in _OWN_VERBS:
            return _deny("can only get, create, update, patch, or delete a CSINode")
        if attributes.subresource:
            return _deny("cannot authorize CSINode subresources")
        if attributes.verb != "create" and attributes.name != node:
            return _deny("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def _slice(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource:
            return _deny("cannot authorize ResourceSlice subresources")
        if attributes.verb == "create":
            return _ALLOWED
        if attributes.verb in ("get", "update", "patch", "delete"):
            return self._check_related(node, attributes)
        if attributes.verb in ("watch", "list", "deletecollection"):
            if ("spec.nodeName", node) in attributes.fields:
                return _ALLOWED
            return _deny("can only list/watch/deletecollection resourceslices with nodeName field selector")
        return _deny(
            "only the following verbs are allowed for a ResourceSlice: "
            "get, watch, list, create, update, patch, delete, deletecollection"
        )

    def _node(self, node: str, attributes: Attributes) -> Decision:
        if not attributes.subresource:
            if attributes.verb in ("create", "update", "patch"):
                return _ALLOWED
            if attributes.verb in READ_VERBS:
                if attributes.name == node:
                    return _ALLOWED
                if not attributes.name:
                    return _deny(f"node '{node}' cannot read all nodes, only its own Node object")
                return _deny(f"node '{node}' cannot read '{attributes.name}', only its own Node object")
        elif attributes.subresource == "status" and attributes.verb in ("update", "patch"):
            return _ALLOWED
        return _NO_OPINION

    def _pod(self, node: str, attributes: Attributes) -> Decision:
        verb, subresource = attributes.verb, attributes.subresource
        if not subresource:
            if verb == "get":
                return self._check_related(node, attributes)
            if verb in READ_VERBS:
                if ("spec.nodeName", node) in attributes.fields:
                    return _ALLOWED
                if attributes.name:
                    return self._check_related(node, attributes)
                return _deny("can only list/watch pods with spec.nodeName field selector")
            if verb in ("create", "delete"):
                return _ALLOWED
        elif (subresource, verb) in _POD_SUBRESOURCES:
            return _ALLOWED
        return _NO_OPINION

    def _certificate_request(self, node: str, attributes: Attributes) -> Decision:
        if attributes.subresource:
            return _deny("nodes may not access the status subresource of PodCertificateRequests")
        if attributes.verb == "create":
            return _ALLOWED
        if attributes.verb == "get":
            return self._check_related(node, attributes)
        if attributes.verb in READ_VERBS:
            if ("spec.nodeName", node) in attributes.fields:
                return _ALLOWED
            return _deny("can only list/watch podcertificaterequests with nodeName field selector")
        return _deny(f"nodes may not {attributes.verb} podcertificaterequests")


_SPECIAL = {
    ("", "secrets"): NodeAuthorizer._read,
    ("", "configmaps"): NodeAuthorizer._read,
    ("", "persistentvolumeclaims"): NodeAuthorizer._volume_claim,
    ("", "persistentvolumes"): NodeAuthorizer._get,
    ("resource.k8s.io", "resourceclaims"): NodeAuthorizer._get,
    ("storage.k8s.io", "volumeattachments"): NodeAuthorizer._get,
    ("", "serviceaccounts"): NodeAuthorizer._account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer._csi_node,
    ("resource.k8s.io", "resourceslices"): NodeAuthorizer._slice,
    ("", "nodes"): NodeAuthorizer._node,
    ("", PODS): NodeAuthorizer._pod,
    ("certificates.k8s.io", "podcertificaterequests"): NodeAuthorizer._certificate_request,
}
