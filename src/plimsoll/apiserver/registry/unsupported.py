"""Kinds that the API server stores and nothing acts on: the one table of them.

Extensions of the API itself are not the job of the embedded server. New ones are refused, since a client
would wait for them forever (a CustomResourceDefinition is never established, a webhook never called); those
that an older version stored can be read, changed and deleted. All other kinds have a controller here, or one
that can run next to the server, such as those of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Mapping

_OF_KUBE_APISERVER = "run Plimsoll's components with a kube-apiserver instead"
_WEBHOOK = (
    "the embedded API server calls no admission webhooks; use a ValidatingAdmissionPolicy or "
    f"MutatingAdmissionPolicy, or {_OF_KUBE_APISERVER}"
)

#: DIFF: upstream acts on them (test_extensions_of_the_api_are_refused).
#: Why objects of a resource cannot be created, and what to use instead, by key.
REFUSED: Mapping[str, str] = {
    "apiservices.apiregistration.k8s.io": (
        f"the embedded API server does not aggregate other API servers; {_OF_KUBE_APISERVER}"
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        "the embedded API server does not serve custom resources; use a ConfigMap for configuration, or "
        f"{_OF_KUBE_APISERVER}"
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOK,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOK,
}
