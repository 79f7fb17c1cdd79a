"""Defaults of webhook configurations and admission policies.

They are not validated, and nothing here calls or evaluates them.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_missing
from plimsoll.apiserver.validation.object_trees import Tree, subtree


def _set_match_defaults(match: Tree) -> None:
    """Set the defaults that webhooks and policies have in common for the objects they match."""
    default_if_missing(match, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for name in ("rules", "resourceRules", "excludeResourceRules"):
        for rule in match.get(name, ()):
            default_if_missing(rule, scope="*")


def _set_webhooks_defaults(tree: Tree) -> None:
    for webhook in tree.get("webhooks", ()):
        _set_match_defaults(webhook)
        default_if_missing(webhook, failurePolicy="Fail", timeoutSeconds=10)
        if "service" in subtree(webhook, "clientConfig"):
            default_if_missing(webhook["clientConfig"]["service"], port=443)


def _set_mutating_webhooks_defaults(tree: Tree) -> None:
    _set_webhooks_defaults(tree)
    for webhook in tree.get("webhooks", ()):
        default_if_missing(webhook, reinvocationPolicy="Never")


def _set_policy_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    default_if_missing(spec, failurePolicy="Fail")
    if "matchConstraints" in spec:
        _set_match_defaults(spec["matchConstraints"])


def _set_policy_binding_defaults(tree: Tree) -> None:
    match = subtree(tree, "spec").get("matchResources")
    if match is not None:
        _set_match_defaults(match)


WEBHOOK_RULES: Mapping[str, KindRules] = {
    "ValidatingWebhookConfiguration": KindRules("admissionregistration.v1", _set_webhooks_defaults),
    "MutatingWebhookConfiguration": KindRules("admissionregistration.v1", _set_mutating_webhooks_defaults),
    "ValidatingAdmissionPolicy": KindRules("admissionregistration.v1", _set_policy_defaults),
    "MutatingAdmissionPolicy": KindRules("admissionregistration.v1", _set_policy_defaults),
    "ValidatingAdmissionPolicyBinding": KindRules("admissionregistration.v1", _set_policy_binding_defaults),
    "MutatingAdmissionPolicyBinding": KindRules("admissionregistration.v1", _set_policy_binding_defaults),
}
