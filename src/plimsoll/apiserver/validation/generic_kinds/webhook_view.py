"""Views of webhook configurations and admission policies, for defaulting."""

from __future__ import annotations

from plimsoll.api.meta import Int32, ObjectMeta, Wire


class RuleWithOperations(Wire, frozen=True):
    scope: str | None = None


class ServiceReference(Wire, frozen=True):
    port: Int32 | None = None


class WebhookClientConfig(Wire, frozen=True):
    service: ServiceReference | None = None


class Webhook(Wire, frozen=True):
    client_config: WebhookClientConfig = WebhookClientConfig()
    rules: tuple[RuleWithOperations, ...] = ()


class WebhookConfiguration(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class MatchResources(Wire, frozen=True):
    resource_rules: tuple[RuleWithOperations, ...] = ()
    exclude_resource_rules: tuple[RuleWithOperations, ...] = ()


class AdmissionPolicySpec(Wire, frozen=True):
    failure_policy: str | None = None
    match_constraints: MatchResources | None = None


class AdmissionPolicy(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionPolicySpec = AdmissionPolicySpec()


class AdmissionPolicyBindingSpec(Wire, frozen=True):
    match_resources: MatchResources | None = None


class AdmissionPolicyBinding(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: AdmissionPolicyBindingSpec = AdmissionPolicyBindingSpec()
