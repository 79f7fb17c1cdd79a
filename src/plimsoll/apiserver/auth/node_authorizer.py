"""What a node may do: the Node authorizer.

Owns the rules that go beyond RBAC for users `system:node:NAME` of the group `system:nodes`: a node reads
only what concerns it (`relations.py`), lists only what it selects by its own name, and touches only its own
Node, CSINode, lease and slices. What it writes is checked by `restriction.py` as well.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.auth.attributes import READ_VERBS, Attributes, Decision, ObjectReader
from plimsoll.apiserver.auth.default_roles import NODE_RULES
from plimsoll.apiserver.auth.node_graph import PODS, NodeGraph
from plimsoll.apiserver.auth.rbac_rules import GrantIndex, RoleGrant
from plimsoll.apiserver.storage.records import ObjectKey

LEASE_NAMESPACE = "kube-node-lease"
_POD_PARTS = frozenset({("status", "update"), ("status", "patch"), ("eviction", "create")})
_OWN_VERBS = frozenset({"get", "create", "update", "patch", "delete"})
_ALLOWED = Decision(True, "")
_NO_OPINION = Decision(False, "")


def _no(reason: str) -> Decision:
    return Decision(False, reason)


class NodeAuthorizer:
    """Answers for nodes; what it does not allow, roles bound to the node still may."""

    def __init__(self, reader: ObjectReader) -> None:
        self.relations = NodeGraph(reader)
        self._rules = GrantIndex(RoleGrant(rule) for rule in NODE_RULES)

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Take note of a write."""
        self.relations.observe(key, tree)

    def authorize(self, node: str, asked: Attributes) -> Decision:
        """Whether the Node authorizer allows a request of a node."""
        if not node:
            return _no(f'unknown node for user "{asked.user.name}"')
        if not asked.path:
            special = _SPECIAL.get((asked.group, asked.resource))
            if special is not None:
                return special(self, node, asked)
        return _ALLOWED if self._rules.find(asked) else _NO_OPINION

    def _related(self, node: str, asked: Attributes) -> Decision:
        if not asked.name:
            return _no("No Object name found")
        resource = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
        if self.relations.concerns(node, resource, asked.namespace, asked.name):
            return _ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def _get(self, node: str, asked: Attributes) -> Decision:
        if asked.verb != "get":
            return _no("can only get individual resources of this type")
        if asked.subresource:
            return _no("cannot get subresource")
        return self._related(node, asked)

    def _read(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in READ_VERBS:
            return _no("can only read resources of this type")
        if asked.subresource:
            return _no("cannot read subresource")
        if not asked.namespace:
            return _no("can only read namespaced object of this type")
        return self._related(node, asked)

    def _volume_claim(self, node: str, asked: Attributes) -> Decision:
        if asked.subresource != "status":
            return self._get(node, asked)
        if asked.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._related(node, asked)

    def _account(self, node: str, asked: Attributes) -> Decision:
        if asked.verb == "get" and not asked.subresource:
            return self._read(node, asked)
        if asked.verb != "create" or not asked.name:
            return _no("can only create tokens for individual service accounts")
        if asked.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._related(node, asked)

    def _lease(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a node lease")
        if asked.namespace != LEASE_NAMESPACE:
            return _no(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        # The name of what is created is in the body: `restriction.py` sees to it.
        if asked.verb != "create" and asked.name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def _csi_node(self, node: str, asked: Attributes) -> Decision:
        if asked.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a CSINode")
        if asked.subresource:
            return _no("cannot authorize CSINode subresources")
        if asked.verb != "create" and asked.name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def _slice(self, node: str, asked: Attributes) -> Decision:
        if asked.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        if asked.verb == "create":
            return _ALLOWED
        if asked.verb in ("get", "update", "patch", "delete"):
            return self._related(node, asked)
        if asked.verb in ("watch", "list", "deletecollection"):
            if ("spec.nodeName", node) in asked.fields:
                return _ALLOWED
            return _no("can only list/watch/deletecollection resourceslices with nodeName field selector")
        return _no(
            "only the following verbs are allowed for a ResourceSlice: "
            "get, watch, list, create, update, patch, delete, deletecollection"
        )

    def _node(self, node: str, asked: Attributes) -> Decision:
        if not asked.subresource:
            if asked.verb in ("create", "update", "patch"):
                return _ALLOWED
            if asked.verb in READ_VERBS:
                if asked.name == node:
                    return _ALLOWED
                if not asked.name:
                    return _no(f"node '{node}' cannot read all nodes, only its own Node object")
                return _no(f"node '{node}' cannot read '{asked.name}', only its own Node object")
        elif asked.subresource == "status" and asked.verb in ("update", "patch"):
            return _ALLOWED
        return _NO_OPINION

    def _pod(self, node: str, asked: Attributes) -> Decision:
        verb, subresource = asked.verb, asked.subresource
        if not subresource:
            if verb == "get":
                return self._related(node, asked)
            if verb in READ_VERBS:
                if ("spec.nodeName", node) in asked.fields:
                    return _ALLOWED
                if asked.name:
                    return self._related(node, asked)
                return _no("can only list/watch pods with spec.nodeName field selector")
            if verb in ("create", "delete"):
                return _ALLOWED
        elif (subresource, verb) in _POD_PARTS:
            return _ALLOWED
        return _NO_OPINION

    def _certificate_request(self, node: str, asked: Attributes) -> Decision:
        if asked.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        if asked.verb == "create":
            return _ALLOWED
        if asked.verb == "get":
            return self._related(node, asked)
        if asked.verb in READ_VERBS:
            if ("spec.nodeName", node) in asked.fields:
                return _ALLOWED
            return _no("can only list/watch podcertificaterequests with nodeName field selector")
        return _no(f"nodes may not {asked.verb} podcertificaterequests")


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
