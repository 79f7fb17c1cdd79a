"""Warnings about pods and pod templates: deprecated fields, and settings that have no or a surprising effect.

The texts are those of Kubernetes 1.36, which clients show as they are. Works on canonical trees after
validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from plimsoll.api.names import dns_label, label_value
from plimsoll.api.quantity import NANO, Quantity
from plimsoll.apiserver.validation.addresses import find_address_warning
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.annotations import APP_ARMOR
from plimsoll.apiserver.validation.pod.prepare_create import read_app_armor_profile

Warnings: TypeAlias = Iterator[str]

DEPRECATED_NODE_LABELS: Mapping[str, str] = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_USE_SYSCTLS = 'non-functional in v1.11+; use the "sysctls" field instead'
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": _USE_SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _USE_SYSCTLS,
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
#: Fields of a volume whose warning has another name.
_SHOWN_AS = {"storageos": "storageOS"}
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_NO_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_NO_APP_ARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NO_MATCH = "a null labelSelector results in matching no pod"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WHOLE = ("memory", "ephemeral-storage")


def find_pod_warnings(pod: Tree, at: str = "") -> Warnings:
    """Yield the warnings about a pod, or about the pod template at the path `at` (`spec.template.`)."""
    spec, annotations = subtree(pod, "spec"), subtree(pod, "metadata", "annotations")
    path = f"{at}spec"
    yield from _placement(spec, path)
    if annotations:
        for name, text in _ANNOTATIONS.items():
            if name in annotations:
                yield f"{at}metadata.annotations[{name}]: {text}"
    if "volumes" in spec:
        yield from _volumes(spec["volumes"], f"{path}.volumes")
    yield from _repeated(spec.get("hostAliases", ()), "ip", f"{path}.hostAliases")
    yield from _repeated(spec.get("imagePullSecrets", ()), "name", f"{path}.imagePullSecrets")
    for index, secret in enumerate(spec.get("imagePullSecrets", ())):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    yield from _fractions(spec.get("overhead"), f"{path}.overhead")
    if _SECCOMP_POD in annotations and "seccompProfile" not in subtree(spec, "securityContext"):
        yield f"{at}metadata.annotations[{_SECCOMP_POD}]: {_NO_SECCOMP}"
    containers = list(_containers(spec, path))
    for container, place in containers:
        if annotations:
            yield from _profiles(container, spec, annotations, at)
        for kind in ("limits", "requests"):
            yield from _fractions(subtree(container, "resources").get(kind), f"{place}.resources.{kind}")
        yield from _hidden_variables(container.get("env", ()), f"{place}.env")
    yield from _ports(containers)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; "
            "negative values are invalid and will be treated as 1"
        )
    if "affinity" in spec:
        yield from _pod_affinity(spec["affinity"], f"{path}.affinity")
    for index, server in enumerate(subtree(spec, "dnsConfig").get("nameservers", ())):
        yield from find_address_warning(server, f"{path}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases", ())):
        yield from find_address_warning(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")


def find_name_warnings(tree: Tree, used_in: str) -> Warnings:
    problems = dns_label(subtree(tree, "metadata").get("name", ""))
    if problems:
        yield (
            f"metadata.name: this is used in {used_in}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(problems)}]"
        )


# -- placement


def _placement(spec: Tree, path: str) -> Warnings:
    for label in spec.get("nodeSelector", ()):
        if label in DEPRECATED_NODE_LABELS:
            yield f"{path}.nodeSelector[{label}]: {DEPRECATED_NODE_LABELS[label]}"
    affinity = subtree(spec, "affinity", "nodeAffinity")
    terms = subtree(affinity, _REQUIRED).get("nodeSelectorTerms", ())
    for index, term in enumerate(terms):
        place = f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[{index}]"
        yield from find_node_selector_warnings(term, place)
    for index, preferred in enumerate(affinity.get(_PREFERRED, ())):
        place = f"{path}.affinity.nodeAffinity.{_PREFERRED}[{index}].preference"
        yield from find_node_selector_warnings(subtree(preferred, "preference"), place, with_values=True)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        place, label = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if label in DEPRECATED_NODE_LABELS:
            yield f"{place}.topologyKey: {label} is {DEPRECATED_NODE_LABELS[label]}"
        if "labelSelector" not in constraint:
            yield f"{place}.labelSelector: {_NO_MATCH}"


def find_node_selector_warnings(term: Tree, path: str, *, with_values: bool = False) -> Warnings:
    """Yield the warnings about a node selector term; validation does not check values of preferred terms."""
    for index, expression in enumerate(term.get("matchExpressions", ())):
        place, label = f"{path}.matchExpressions[{index}]", expression.get("key", "")
        if label in DEPRECATED_NODE_LABELS:
            yield f"{place}.key: {label} is {DEPRECATED_NODE_LABELS[label]}"
        for number, value in enumerate(expression.get("values", ()) if with_values else ()):
            for problem in label_value(value):
                yield f"{place}.values[{number}]: {value} is invalid, {problem}"


def _pod_affinity(affinity: Tree, path: str) -> Warnings:
    for side in ("podAffinity", "podAntiAffinity"):
        rules = subtree(affinity, side)
        for index, term in enumerate(rules.get(_REQUIRED, ())):
            if "labelSelector" not in term:
                yield f"{path}.{side}.{_REQUIRED}[{index}].labelSelector: {_NO_MATCH}"
        for index, weighted in enumerate(rules.get(_PREFERRED, ())):
            if "labelSelector" not in subtree(weighted, "podAffinityTerm"):
                yield f"{path}.{side}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_MATCH}"


# -- containers


def _containers(spec: Tree, path: str) -> Iterator[tuple[Tree, str]]:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group, ())):
            yield container, f"{path}.{group}[{index}]"


def _profiles(container: Tree, spec: Tree, annotations: Mapping[str, str], at: str) -> Warnings:
    """Yield the warnings about annotations that a field replaces."""
    context, name = subtree(container, "securityContext"), container.get("name", "")
    if _SECCOMP_CONTAINER + name in annotations and "seccompProfile" not in context:
        yield f"{at}metadata.annotations[{_SECCOMP_CONTAINER}{name}]: {_NO_SECCOMP}"
    value = annotations.get(APP_ARMOR + name)
    if value is None or (not at and subtree(spec, "os").get("name") == "windows"):
        return
    profile, of_pod = read_app_armor_profile(value), subtree(spec, "securityContext").get("appArmorProfile")
    # The profile of a new pod was copied from the annotation when it was prepared.
    given = context.get("appArmorProfile")
    copied = not at and given is not None and given == profile
    if (given is None and (profile is None or profile != of_pod)) or copied:
        yield f"{at}metadata.annotations[{APP_ARMOR}{name}]: {_NO_APP_ARMOR}"


def _fractions(amounts: Mapping[str, str] | None, path: str, names: Sequence[str] = _WHOLE) -> Warnings:
    """Yield the warnings about amounts that are not whole bytes."""
    for name in names if amounts else ():
        text = amounts.get(name, "") if amounts else ""
        if text and Quantity.parse(text).nano % NANO:
            yield f'{path}[{name}]: fractional byte value "{text}" is invalid, must be an integer'


def find_volume_claim_warnings(spec: Tree, path: str) -> Warnings:
    """Yield the warnings about the spec of a volume claim."""
    for kind in ("requests", "limits"):
        yield from _fractions(subtree(spec, "resources").get(kind), f"{path}.resources.{kind}", ("storage",))


def _hidden_variables(variables: Sequence[Tree], path: str) -> Warnings:
    """Yield the warnings about variables that an earlier one of the same name is lost with."""
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == reference or reference not in value):
            yield (
                f'{path}[{index}]: hides previous definition of "{name}", '
                "which may be dropped when using apply"
            )
        seen.add(name)


def _ports(containers: Sequence[tuple[Tree, str]]) -> Warnings:
    ports = [
        (port, f"{place}.ports[{index}]")
        for container, place in containers
        for index, port in enumerate(container.get("ports", ()))
    ]
    known: dict[tuple[Any, Any], list[tuple[Tree, str]]] = {}
    for port, place in ports:
        if port.get("hostIP") and not port.get("hostPort"):
            shown = " ".join(
                f"{label}:{port.get(name, empty)}"
                for label, name, empty in (
                    ("Name", "name", ""),
                    ("HostPort", "hostPort", 0),
                    ("ContainerPort", "containerPort", 0),
                    ("Protocol", "protocol", ""),
                    ("HostIP", "hostIP", ""),
                )
            )
            yield f"{place}: hostIP set without hostPort: {{{shown}}}"
        others = known.setdefault((port.get("containerPort"), port.get("protocol")), [])
        for other, at in others:
            if overlap := _overlap(port, other):
                yield f"{place}: {overlap} port definition with {at}"
        others.append((port, place))
    names: dict[str, str] = {}
    for port, place in ports:
        name = port.get("name", "")
        if name and name in names:
            yield (
                f'{place}: duplicate port name "{name}" with {names[name]}, '
                f"services and probes that select ports by name will use {names[name]}"
            )
        elif name:
            names[name] = place


def _overlap(port: Tree, other: Tree) -> str:
    """Return how the definitions of one port relate; "" if they do not collide."""
    address, host_port = port.get("hostIP", ""), port.get("hostPort", 0)
    other_address, other_host_port = other.get("hostIP", ""), other.get("hostPort", 0)
    if (address, host_port) == (other_address, other_host_port):
        return "duplicate"
    if not host_port or not other_host_port:
        return "overlapping"
    is_ambiguous = host_port == other_host_port and bool(address) != bool(other_address)
    return "dangerously ambiguous" if is_ambiguous else ""


def _repeated(items: Sequence[Tree], field: str, path: str) -> Warnings:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(field, "")
        if value in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{value}"'
        seen.add(value)


# -- volumes


def _volumes(volumes: Sequence[Tree], path: str) -> Warnings:
    for index, volume in enumerate(volumes):
        for source in volume:
            if source in _VOLUMES:
                yield f"{path}[{index}].{_SHOWN_AS.get(source, source)}: {_VOLUMES[source]}"
            elif source == "ephemeral":
                template = subtree(volume, "ephemeral", "volumeClaimTemplate", "spec")
                place = f"{path}[{index}].ephemeral.volumeClaimTemplate.spec"
                yield from find_volume_claim_warnings(template, place)
    for volume in volumes:
        yield from _overlapping_paths(volume)


def _overlapping_paths(volume: Tree) -> Warnings:
    """Yield the warnings about files of a volume that replace each other."""
    name = volume.get("name", "")
    for source, what in (
        ("configMap", 'ConfigMap "{name}"'),
        ("secret", 'Secret "{secretName}"'),
        ("downwardAPI", "DownwardAPI"),
    ):
        if source in volume:
            given = {"name": "", "secretName": "", **volume[source]}
            paths = [(item.get("path", ""), "") for item in volume[source].get("items", ())]
            yield from _overlaps(f'volume "{name}" ({what.format_map(given)})', paths, [])
    known: list[tuple[str, str]] = []
    for source in subtree(volume, "projected").get("sources", ()):
        if not source:
            yield f'volume "{name}" (Projected) has no sources provided'
        else:
            yield from _overlaps(f'volume "{name}" (Projected)', _projected_paths(source), known)


def _projected_paths(source: Tree) -> list[tuple[str, str]]:
    """Return the paths of a projection, each with its source for messages."""
    if "configMap" in source or "secret" in source or "downwardAPI" in source:
        kind = next(name for name in ("configMap", "secret", "downwardAPI") if name in source)
        named = f'{kind[0].upper()}{kind[1:]} "{source[kind].get("name", "")}"'
        what = "DownwardAPI" if kind == "downwardAPI" else named
        return [(item.get("path", ""), what) for item in source[kind].get("items", ())]
    if "serviceAccountToken" in source:
        return [(source["serviceAccountToken"].get("path", ""), "ServiceAccountToken")]
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        named = bundle.get("name") or bundle.get("signerName", "")
        return [(bundle.get("path", ""), f'ClusterTrustBundle "{named}"')]
    certificate = subtree(source, "podCertificate")
    return [
        (certificate[field], f"PodCertificate {what}")
        for field, what in (
            ("certificateChainPath", "chain"),
            ("keyPath", "key"),
            ("credentialBundlePath", "credential bundle"),
        )
        if certificate.get(field)
    ]


def _overlaps(what: str, paths: Sequence[tuple[str, str]], known: list[tuple[str, str]]) -> Warnings:
    """Yield the overlaps of paths with the known ones and each other; adds them to the known ones."""
    for text, source in paths:
        mine = text.rstrip("/"), source
        for other in known if mine[0] else ():
            first, second = f"{mine[0]}/", f"{other[0]}/"
            if other[0] and (first.startswith(second) or second.startswith(first)):
                yield f"{what}: overlapping paths: {_show(mine)} with {_show(other)}"
        known.append(mine)


def _show(path: tuple[str, str]) -> str:
    return f'"{path[0]}" ({path[1]})' if path[1] else f'"{path[0]}"'
