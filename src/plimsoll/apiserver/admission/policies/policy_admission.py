"""START HERE: admission by policies, from a request to its mutation or denial.

`mutate` runs before an object is prepared, `validate` after it. Policies do not apply to policies and their
bindings, nor to reviews. Without stored policies, both cost one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.admission.policies.attributes import (
    AdmissionAttributes,
    MatchedResource,
    Tree,
    object_labels,
)
from plimsoll.apiserver.admission.policies.compiled_policy import CompiledBinding
from plimsoll.apiserver.admission.policies.evaluation import PolicyInput
from plimsoll.apiserver.admission.policies.matching import namespace_of_object
from plimsoll.apiserver.admission.policies.mutating import (
    Invocation,
    MutationFailure,
    ReinvocationState,
    denial,
    run_mutations,
)
from plimsoll.apiserver.admission.policies.params import collect_params
from plimsoll.apiserver.admission.policies.policy_index import PolicyHook, PolicyIndex
from plimsoll.apiserver.admission.policies.validating import AuditAnnotations, Denial, validate_bound
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.validation.write import default_object
from plimsoll.errors import ApiError, DecodeError, PolicyParamError

#: Runs the other admission plugins on an object again.
Readmit = Callable[[Tree], Tree]


class PolicyAdmission:
    """Admission policies of one API. `is_observed` states that `observe` is called after every write."""

    def __init__(self, context: ApiContext, *, is_observed: bool = True) -> None:
        self._context = context
        self._store = context.store
        self._validating = PolicyIndex(context.store, "validating", is_observed=is_observed)
        self._mutating = PolicyIndex(context.store, "mutating", is_observed=is_observed)
        self._exempt = frozenset(self._validating.resources + self._mutating.resources)
        #: Cost that the policies of a request may spend in the event loop, if workers can take over.
        self.inline_cost: int | None = None

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Take note of a write to the store."""
        self._validating.observe(key)
        self._mutating.observe(key)

    @property
    def validates(self) -> bool:
        """Return whether there is a validating policy with a binding."""
        return bool(self._validating.hooks)

    @property
    def mutates(self) -> bool:
        """Return whether there is a mutating policy with a binding."""
        return bool(self._mutating.hooks)

    # -- validating

    def validate(self, attributes: AdmissionAttributes) -> None:
        """Validate a request; ApiError if a policy denies it, PolicyCostError if they cost too much here."""
        if attributes.info.resource.key in self._exempt:
            return
        attributes.inline_cost = self.inline_cost
        denials: list[Denial] = []
        for hook in self._validating.hooks:
            denials += self._validate(hook, attributes)
        if denials:
            raise denials[0].error(attributes)

    def _validate(self, hook: PolicyHook, attributes: AdmissionAttributes) -> list[Denial]:
        policy, denials = hook.policy, []
        matched = policy.criteria.match(attributes, self._namespace_labels)
        if matched is None:
            return []
        if policy.configuration_error:
            text = f"failed to configure policy: {policy.configuration_error}"
            return [Denial(policy.name, "", text)] if policy.fails_closed else []
        annotations = AuditAnnotations(policy)
        for binding in hook.bindings:
            if not self._binding_matches(binding, attributes):
                continue
            try:
                params = collect_params(self._store, policy, binding, attributes)
            except PolicyParamError as error:
                if policy.fails_closed:
                    text = f"failed to configure binding: {error}"
                    denials.append(Denial(policy.name, binding.name, text))
                continue
            for param in params:
                given = self._input(attributes, matched, param)
                denials += validate_bound(policy, binding, given, annotations)
        annotations.publish(attributes)
        return denials

    # -- mutating

    def mutate(self, attributes: AdmissionAttributes, readmit: Readmit) -> Tree:
        """Return the object of a request as the policies change it; ApiError if one fails, PolicyCostError if
        they cost too much here.

        `readmit` runs the other plugins again after a change; policies that ask for it are then repeated.
        """
        tree = attributes.tree
        assert tree is not None
        if attributes.info.resource.key in self._exempt:
            return tree
        attributes.inline_cost = self.inline_cost
        state = ReinvocationState()
        self._dispatch(attributes, state, repeats=False)
        if not state.changed:
            return tree
        output = attributes.tree
        assert output is not None
        attributes.tree = readmit(output)
        if attributes.tree != output:
            state.require()
        state.changed = False
        self._dispatch(attributes, state, repeats=True)
        assert attributes.tree is not None
        return readmit(attributes.tree) if state.changed else attributes.tree

    def _dispatch(self, attributes: AdmissionAttributes, state: ReinvocationState, *, repeats: bool) -> None:
        failures: list[MutationFailure] = []
        invocations: list[Invocation] = []
        for hook in self._mutating.hooks:
            self._collect(hook, attributes, invocations, failures)
        if invocations:
            if not repeats:
                assert attributes.tree is not None
                attributes.tree = self._set_defaults(attributes, attributes.tree)
            failures += run_mutations(
                attributes,
                invocations,
                state,
                lambda tree, matched: self._to_storage(attributes, tree, matched),
                repeats=repeats,
            )
        refusal = denial(attributes, failures)
        if refusal is not None:
            raise refusal

    def _collect(
        self,
        hook: PolicyHook,
        attributes: AdmissionAttributes,
        invocations: list[Invocation],
        failures: list[MutationFailure],
    ) -> None:
        policy = hook.policy
        matched = policy.criteria.match(attributes, self._namespace_labels)
        if matched is None:
            return
        if policy.configuration_error:
            text = f"failed to configure policy: {policy.configuration_error}"
            failures.append(MutationFailure(policy, "", text))
            return
        for binding in hook.bindings:
            if not self._binding_matches(binding, attributes):
                continue
            try:
                params = collect_params(self._store, policy, binding, attributes)
            except PolicyParamError as error:
                text = f"failed to configure binding: {error}"
                failures.append(MutationFailure(policy, binding.name, text))
                continue
            invocations += [
                Invocation(policy, binding, self._input(attributes, matched, param)) for param in params
            ]

    def _to_storage(self, attributes: AdmissionAttributes, tree: Tree, matched: MatchedResource) -> Tree:
        if not attributes.has_own_kind:
            return tree
        return self._set_defaults(attributes, attributes.to_storage(tree, matched.resource, matched.version))

    def _set_defaults(self, attributes: AdmissionAttributes, tree: Tree) -> Tree:
        """Return the object with the defaults that upstream sets when it decodes a request."""
        if not attributes.has_own_kind:
            return tree
        kind, now = attributes.info.resource.kind, format_datetime(self._context.now())
        try:
            return default_object(kind, tree, now, self._context.gates)
        except DecodeError as error:
            raise ApiError(500, "InternalError", f"Internal error occurred: {error}") from None

    # -- both

    def _input(
        self, attributes: AdmissionAttributes, matched: MatchedResource, params: Tree | None
    ) -> PolicyInput:
        namespace = None if attributes.is_namespace else self._namespace(attributes.namespace)
        authorize = self._context.authorizer.authorize
        return PolicyInput(attributes, matched, params, namespace, authorize)

    def _binding_matches(self, binding: CompiledBinding, attributes: AdmissionAttributes) -> bool:
        criteria = binding.criteria
        return criteria is None or criteria.match(attributes, self._namespace_labels) is not None

    def _namespace_labels(self, attributes: AdmissionAttributes) -> Mapping[str, str]:
        written = namespace_of_object(attributes)
        return object_labels(written or self._namespace(attributes.namespace)) or {}

    def _namespace(self, name: str) -> Tree | None:
        stored = self._store.get(ObjectKey("namespaces", "", name)) if name else None
        return None if stored is None else codec.decode_tree(stored.raw)
