"""Views of the kinds that register admission, as far as their defaults depend on them."""

from __future__ import annotations

from plimsoll.api.meta import Int32, ObjectMeta, Wire


class Rule(Wire, frozen=True):
    scope: str | None = None


class ServiceReference(Wire, frozen=True):
    port: Int32 | None = None


class WebhookClient(Wire, frozen=True):
    service: ServiceReference | None = None


class Webhook(Wire, frozen=True):
    client_config: WebhookClient = WebhookClient()
    rules: tuple[Rule, ...] = ()


class WebhookConfiguration(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class MatchResources(Wire, frozen=True):
    resource_rules: tuple[Rule, ...] = ()
    exclude_resource_rules: tuple[Rule, ...] = ()


class PolicySpec(Wire, frozen=True):
    failure_policy: str | None = None
    match_constraints: MatchResources | None = None


class Policy(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PolicySpec = PolicySpec()


class PolicyBindingSpec(Wire, frozen=True):
    match_resources: MatchResources | None = None


class PolicyBinding(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PolicyBindingSpec = PolicyBindingSpec()
