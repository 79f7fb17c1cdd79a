"""Affinity terms of a pod's spec, parsed into hashable values.

A selector of namespaces needs their labels; an unknown namespace has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from plimsoll.api.core import Pod, PodAffinity, PodAffinityTerm
from plimsoll.api.label_selection import (
    IN,
    NOT_IN,
    CompiledLabelRequirement,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.meta import LabelSelector

#: Labels of namespaces by name.
NamespaceLabels: TypeAlias = "Mapping[str, Mapping[str, str]]"


@dataclass(frozen=True)
class PodSelector:
    """Label selector in listed namespaces and in those that a namespace selector matches.

    DIFF: the namespaceSelector of an incoming pod's term selects exactly the namespaces it matches. Upstream
    also matches the selector against an empty set of labels, so that NotIn and DoesNotExist select every
    namespace (test_a_namespace_selector_that_excludes).
    """

    namespaces: frozenset[str]
    selector: CompiledLabelSelector
    namespace_selector: CompiledLabelSelector | None = None

    @cached_property
    def _hash(self) -> int:
        return hash((self.namespaces, self.selector, self.namespace_selector))

    def __hash__(self) -> int:
        return self._hash

    def matches(self, namespace: str, labels: Mapping[str, str], namespaces: NamespaceLabels) -> bool:
        """Return whether pods with these labels in a namespace are selected."""
        if not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        selector = self.namespace_selector
        return selector is not None and selector.matches(namespaces.get(namespace, {}))


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pod selector and topology key."""

    selector: PodSelector
    topology_key: str


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """All terms of a pod; preferred terms have a weight, negative for anti-affinity."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[AffinityTerm, int], ...] = ()
    problem: str = ""  #: parse error; the terms of that list are omitted


NO_TERMS = AffinityTerms()


def read_terms(pod: Pod) -> AffinityTerms:
    """Parse the terms of a pod's spec."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    own, anti = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    lists = {
        "requiredAffinityTerms": own.required,
        "requiredAntiAffinityTerms": anti.required,
        "preferredAffinityTerms": tuple(each.pod_affinity_term for each in own.preferred),
        "preferredAntiAffinityTerms": tuple(each.pod_affinity_term for each in anti.preferred),
    }
    problems: list[str] = []
    required, required_anti, preferred, preferred_anti = (
        _read_list(pod, name, terms, problems) for name, terms in lists.items()
    )
    weights = [each.weight for each in own.preferred] if preferred else []
    weights += [-each.weight for each in anti.preferred] if preferred_anti else []
    weighted = tuple(zip((*preferred, *preferred_anti), weights, strict=True))
    return AffinityTerms(required, required_anti, weighted, "; ".join(problems))


def _read_list(
    pod: Pod, name: str, terms: Iterable[PodAffinityTerm], problems: list[str]
) -> tuple[AffinityTerm, ...]:
    found: list[AffinityTerm] = []
    for number, term in enumerate(terms):
        read = _read_term(pod, term)
        if isinstance(read, SelectorProblem):
            problems.append(f"{name}[{number}].{read}")
            return ()
        found.append(read)
    return tuple(found)


def _read_term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm | SelectorProblem:
    selector = _compile("labelSelector", term.label_selector)
    if isinstance(selector, SelectorProblem):
        return selector
    names, namespace_selector = frozenset(term.namespaces), None
    if term.namespace_selector is not None:
        found = _compile("namespaceSelector", term.namespace_selector)
        if isinstance(found, SelectorProblem):
            return found
        namespace_selector = found
    elif not names:
        names = frozenset([pod.metadata.namespace])
    more = [*_label_key_requirements(pod, term, term.match_label_keys, IN)]
    more += _label_key_requirements(pod, term, term.mismatch_label_keys, NOT_IN)
    if more:
        selector = selector.narrowed(more)
    return AffinityTerm(PodSelector(names, selector, namespace_selector), term.topology_key)


def _compile(field: str, selector: LabelSelector | None) -> CompiledLabelSelector | SelectorProblem:
    read = compile_label_selector(selector)
    return (
        SelectorProblem(f"{field}.{read.field}", read.message) if isinstance(read, SelectorProblem) else read
    )


def _label_key_requirements(
    pod: Pod, term: PodAffinityTerm, keys: Iterable[str], operator: str
) -> list[CompiledLabelRequirement]:
    """Return the requirements of matchLabelKeys or mismatchLabelKeys that the selector does not have.

    API servers merge them into the selector when a pod is created; older servers do not.
    """
    if not keys or term.label_selector is None:
        return []
    labels = pod.metadata.labels
    merged = {each.key for each in term.label_selector.match_expressions if each.operator == operator}
    return [
        CompiledLabelRequirement(key, operator, (labels[key],))
        for key in keys
        if key in labels and key not in merged
    ]
