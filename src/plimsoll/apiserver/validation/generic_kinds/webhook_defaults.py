"""Defaults of the kinds that register admission: webhooks, and policies with their bindings.

Nothing of them is checked, and nothing here calls or evaluates them.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules, fill_missing
from plimsoll.apiserver.validation.generic_kinds.webhook_view import (
    Policy,
    PolicyBinding,
    WebhookConfiguration,
)
from plimsoll.apiserver.validation.object_trees import Tree, part


def _fill_match(match: Tree) -> None:
    """What webhooks and policies say alike of the objects they are about."""
    fill_missing(match, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for name in ("rules", "resourceRules", "excludeResourceRules"):
        for rule in match.get(name, ()):
            fill_missing(rule, scope="*")


def _fill_webhooks(tree: Tree) -> None:
    for webhook in tree.get("webhooks", ()):
        _fill_match(webhook)
        fill_missing(webhook, failurePolicy="Fail", timeoutSeconds=10)
        if "service" in part(webhook, "clientConfig"):
            fill_missing(webhook["clientConfig"]["service"], port=443)


def _fill_mutating_webhooks(tree: Tree) -> None:
    _fill_webhooks(tree)
    for webhook in tree.get("webhooks", ()):
        fill_missing(webhook, reinvocationPolicy="Never")


def _fill_policy(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_missing(spec, failurePolicy="Fail")
    if "matchConstraints" in spec:
        _fill_match(spec["matchConstraints"])


def _fill_policy_binding(tree: Tree) -> None:
    match = part(tree, "spec").get("matchResources")
    if match is not None:
        _fill_match(match)


WEBHOOK_RULES: Mapping[str, Rules] = {
    "ValidatingWebhookConfiguration": Rules(WebhookConfiguration, _fill_webhooks),
    "MutatingWebhookConfiguration": Rules(WebhookConfiguration, _fill_mutating_webhooks),
    "ValidatingAdmissionPolicy": Rules(Policy, _fill_policy),
    "MutatingAdmissionPolicy": Rules(Policy, _fill_policy),
    "ValidatingAdmissionPolicyBinding": Rules(PolicyBinding, _fill_policy_binding),
    "MutatingAdmissionPolicyBinding": Rules(PolicyBinding, _fill_policy_binding),
}
