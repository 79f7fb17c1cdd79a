"""Evaluation of the policies that apply to a request, up to its mutation or denial.

Imported with the first policy (`policy_admission.py`): a server without policies does not load CEL for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from plimsoll.apiserver.admission.policies.policy_index import PolicyHook
from plimsoll.apiserver.admission.policies.validating import AuditAnnotations, Denial, validate_bound
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.validation.write import default_object
from plimsoll.errors import ApiError, DecodeError, PolicyParamError

#: Runs the other admission plugins on an object again.
Readmit = Callable[[Tree], Tree]


class PolicyEvaluation:
    """Evaluation of compiled policies on the requests of one API."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._store = context.store

    # -- validating

    def validate(self, hooks: Sequence[PolicyHook], attributes: AdmissionAttributes) -> None:
        """Validate a request; ApiError if a policy denies it, PolicyCostError if they cost too much here."""
        denials: list[Denial] = []
        for hook in hooks:
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

    def mutate(self, hooks: Sequence[PolicyHook], attributes: AdmissionAttributes, readmit: Readmit) -> Tree:
        """Return the object of a request as the policies change it; ApiError if one fails, PolicyCostError if
        they cost too much here.

        `readmit` runs the other plugins again after a change; policies that ask for it are then repeated.
        """
        tree = attributes.tree
        assert tree is not None
        state = ReinvocationState()
        self._dispatch(hooks, attributes, state, repeats=False)
        if not state.changed:
            return tree
        output = attributes.tree
        assert output is not None
        attributes.tree = readmit(output)
        if attributes.tree != output:
            state.require()
        state.changed = False
        self._dispatch(hooks, attributes, state, repeats=True)
        assert attributes.tree is not None
        return readmit(attributes.tree) if state.changed else attributes.tree

    def _dispatch(
        self,
        hooks: Sequence[PolicyHook],
        attributes: AdmissionAttributes,
        state: ReinvocationState,
        *,
        repeats: bool,
    ) -> None:
        failures: list[MutationFailure] = []
        invocations: list[Invocation] = []
        for hook in hooks:
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
