"""START HERE: admission by policies.

`mutate` runs before an object is prepared, `validate` after it. Policies do not apply to policies and their
bindings, nor to reviews. Without stored policies, both cost one comparison, and what evaluates them is not
even imported (`policy_evaluation.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plimsoll.apiserver.admission.policies.attributes import AdmissionAttributes, Tree
from plimsoll.apiserver.admission.policies.policy_index import PolicyIndex
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.storage import ObjectKey

if TYPE_CHECKING:
    from plimsoll.apiserver.admission.policies.policy_evaluation import PolicyEvaluation


class PolicyAdmission:
    """Admission policies of one API. `is_observed` states that `observe` is called after every write."""

    def __init__(self, context: ApiContext, *, is_observed: bool = True) -> None:
        self._context = context
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

    def validate(self, attributes: AdmissionAttributes) -> None:
        """Validate a request; ApiError if a policy denies it, PolicyCostError if they cost too much here."""
        hooks = self._validating.hooks
        if hooks and attributes.info.resource.key not in self._exempt:
            attributes.inline_cost = self.inline_cost
            self._evaluation.validate(hooks, attributes)

    def mutate(self, attributes: AdmissionAttributes, readmit: Callable[[Tree], Tree]) -> Tree:
        """Return the object of a request as the policies change it; ApiError if one fails, PolicyCostError if
        they cost too much here.

        `readmit` runs the other plugins again after a change; policies that ask for it are then repeated.
        """
        assert attributes.tree is not None
        hooks = self._mutating.hooks
        if not hooks or attributes.info.resource.key in self._exempt:
            return attributes.tree
        attributes.inline_cost = self.inline_cost
        return self._evaluation.mutate(hooks, attributes, readmit)

    @cached_property
    def _evaluation(self) -> PolicyEvaluation:
        from plimsoll.apiserver.admission.policies.policy_evaluation import (  # noqa: PLC0415 - loads CEL
            PolicyEvaluation,
        )

        return PolicyEvaluation(self._context)
