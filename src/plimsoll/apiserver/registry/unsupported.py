"""Kinds that the API server stores and nothing acts on: the one table of them.

Extensions of the API itself and certificates are not the job of the embedded server. New ones are refused,
since a client would wait for them forever (a CustomResourceDefinition is never established, a webhook never
called, a certificate never signed); those that an older version stored can be read, changed and deleted.
Kinds whose controller has to run next to the server, such as those of kube-controller-manager, can be
created, with a warning. All others have one here.
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
    "certificatesigningrequests.certificates.k8s.io": (
        "no controller of the embedded API server signs certificates; use `plimsoll kubeconfig` for the "
        f"credentials of components and nodes, or {_OF_KUBE_APISERVER}"
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        "the embedded API server does not serve custom resources; use a ConfigMap for configuration, or "
        f"{_OF_KUBE_APISERVER}"
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOK,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOK,
}

_CLUSTER_IPS = "cluster IPs are taken from a fixed range, and those in use follow from the Services"

#: Warnings for new objects that nothing in the server acts on, by key.
WITHOUT_CONTROLLER: Mapping[str, str] = {
    "horizontalpodautoscalers.autoscaling": (
        "no controller of the embedded API server scales workloads; run kube-controller-manager next to it"
    ),
    "ingresses.networking.k8s.io": (
        "the embedded API server has no ingress controller; run one next to the server"
    ),
    "ipaddresses.networking.k8s.io": f"this object has no effect: {_CLUSTER_IPS}",
    "networkpolicies.networking.k8s.io": (
        "network policies are not enforced by Plimsoll; a network plugin of the nodes must do it"
    ),
    "servicecidrs.networking.k8s.io": f"this object has no effect: {_CLUSTER_IPS}",
}
