"""Validating policies: decisions about a request, and their effect (deny, warn, audit)."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from plimsoll.apiserver.admission.policies.attributes import AdmissionAttributes
from plimsoll.apiserver.admission.policies.compiled_policy import (
    CompiledBinding,
    CompiledPolicy,
    Validation,
)
from plimsoll.apiserver.admission.policies.evaluation import (
    Outcome,
    PolicyInput,
    PolicyStep,
    meets_match_conditions,
)
from plimsoll.apiserver.status import forbidden
from plimsoll.errors import ApiError, CelBudgetError, MatchConditionError

_audit = logging.getLogger("plimsoll.server.audit")

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_ANNOTATION_BYTES = 10 * 1024


@dataclass(frozen=True, slots=True)
class Denial:
    """A decision against a request; without a binding, the policy itself is misconfigured."""

    policy: str
    binding: str
    message: str
    reason: str = ""

    def error(self, attributes: AdmissionAttributes) -> ApiError:
        """Return the error of the request."""
        bound = f" with binding '{self.binding}'" if self.binding else ""
        text = f"ValidatingAdmissionPolicy '{self.policy}'{bound} denied request: {self.message}"
        refusal = forbidden(attributes.info.group, attributes.info.plural, shown_name(attributes), text)
        reason = self.reason or "Invalid"
        details = {**(refusal.details or {}), "causes": [{"message": text}]}
        return ApiError(_CODES.get(reason, 422), reason, refusal.message, details)


@dataclass(frozen=True, slots=True)
class _Decision:
    """Decision of one validation: None if it admits the request."""

    message: str
    reason: str = ""


class AuditAnnotations:
    """Audit annotations of one policy for a request; values of several bindings are joined."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._values: dict[str, dict[str, None]] = {}

    def add(self, key: str, value: str) -> None:
        shortened = value.encode()[:_MAX_ANNOTATION_BYTES].decode(errors="ignore")
        self._values.setdefault(key, {})[shortened] = None

    def publish(self, attributes: AdmissionAttributes) -> None:
        for key, values in self._values.items():
            log_annotation(attributes, f"{self._policy.name}/{key}", ", ".join(values))


def validate_bound(
    policy: CompiledPolicy,
    binding: CompiledBinding,
    given: PolicyInput,
    annotations: AuditAnnotations,
) -> list[Denial]:
    """Evaluate a policy with one parameter of a binding; warn and audit, and return the denials."""
    denials = []
    decisions, audited = _decide(policy, given)
    for index, decision in enumerate(decisions):
        if decision is None:
            continue
        for action in binding.actions:
            if action == "Deny":
                denials.append(Denial(policy.name, binding.name, decision.message, decision.reason))
            elif action == "Warn":
                given.attributes.warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' "
                    f"with binding '{binding.name}': {decision.message}"
                )
            elif action == "Audit":
                _log_failure(policy, binding, index, decision, given.attributes)
    for key, outcome in audited:
        if outcome.error and policy.fails_closed:
            denials.append(Denial(policy.name, binding.name, outcome.error))
        elif not outcome.error and isinstance(outcome.value, str) and (value := outcome.value.strip()):
            annotations.add(key, value)
    return denials


def _decide(
    policy: CompiledPolicy, given: PolicyInput
) -> tuple[list[_Decision | None], list[tuple[str, Outcome]]]:
    """Return the decisions, and the audit annotations as they were evaluated."""
    on_error = policy.fails_closed
    try:
        if not meets_match_conditions(policy, given):
            return [], []
    except MatchConditionError as error:
        return [_Decision(str(error))], []
    variables = given.variables(policy)
    step = PolicyStep(policy, {**variables, **given.authorizer_variables()}, given.attributes)
    try:
        outcomes = [step.evaluate(validation.expression) for validation in policy.validations]
        decisions = _messages(policy, outcomes, PolicyStep(policy, variables, given.attributes, step.budget))
        audit = PolicyStep(policy, variables, given.attributes)
        return decisions, [(key, audit.evaluate(value)) for key, value in policy.audit_annotations]
    except CelBudgetError as error:
        return [_Decision(str(error)) if on_error else None], []


def _messages(policy: CompiledPolicy, outcomes: list[Outcome], step: PolicyStep) -> list[_Decision | None]:
    """Return the decision of each validation. As upstream, all messages are evaluated if one fails to fit
    the budget, none of them is used.
    """
    failure = ""
    messages: list[Outcome | None] = []
    try:
        for validation in policy.validations:
            given = validation.message_expression
            messages.append(None if given is None else step.evaluate(given))
    except CelBudgetError as error:
        failure = f"failed messageExpression: {error}"
        messages = [None] * len(outcomes)
    decisions: list[_Decision | None] = []
    for validation, outcome, message in zip(policy.validations, outcomes, messages, strict=True):
        problem = outcome.error or failure
        if problem:
            decisions.append(_Decision(problem) if policy.fails_closed else None)
        elif outcome.value is True:
            decisions.append(None)
        else:
            decisions.append(_Decision(_message(validation, message), validation.reason))
    return decisions


def _message(validation: Validation, outcome: Outcome | None) -> str:
    """Return the message of a failed validation."""
    if outcome is not None and isinstance(outcome.value, str):
        text = outcome.value.strip()
        if text and len(text.encode()) <= _MAX_MESSAGE_BYTES and "\n" not in text:
            return text
    return validation.message.strip() or f"failed expression: {validation.source.strip()}"


def shown_name(attributes: AdmissionAttributes) -> str:
    """Return the name of an object in messages; before the server has generated it, its prefix."""
    if attributes.name:
        return attributes.name
    metadata = (attributes.tree or {}).get("metadata") or {}
    return metadata.get("generateName") or metadata.get("name") or "Unknown"


def log_annotation(attributes: AdmissionAttributes, key: str, value: str) -> None:
    """Log an audit annotation.

    DIFF: there is no audit log; audit annotations go to the log of the server
    (test_audit_annotations_are_logged).
    """
    info = attributes.info
    where = f"{attributes.namespace}/{attributes.name}" if attributes.namespace else attributes.name
    _audit.info(
        "%s %s %s by %s: %s=%s", attributes.operation, info.plural, where, attributes.user.name, key, value
    )


def _log_failure(
    policy: CompiledPolicy,
    binding: CompiledBinding,
    index: int,
    decision: _Decision,
    attributes: AdmissionAttributes,
) -> None:
    failure = {
        "message": decision.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": index,
        "validationActions": list(binding.actions),
    }
    text = json.dumps([failure], separators=(",", ":"))
    log_annotation(attributes, "validation.policy.admission.k8s.io/validation_failure", text)
