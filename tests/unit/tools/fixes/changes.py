"""All changes that may help a pod of `clusters`, written down without looking at why it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod, Toleration
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceToleration, ResourceClaim
from plimsoll.tools.cluster_state import ClusterState

Change = Callable[[ClusterState, Pod], Pod]


def all_changes(state: ClusterState, pod: Pod) -> list[tuple[str, Change]]:
    """Return the named changes of the pod, its claims, and the nodes."""
    return [*_pod_changes(pod), *_claim_changes(state, pod), *_node_changes(state)]


def _spec(**fields: Any) -> Change:
    def change(state: ClusterState, pod: Pod) -> Pod:
        merged = {name: value(pod.spec) if callable(value) else value for name, value in fields.items()}
        pod = replace(pod, spec=replace(pod.spec, **merged))
        state.set(pod)
        return pod

    return change


def _pod_changes(pod: Pod) -> Iterator[tuple[str, Change]]:
    anything = (Toleration(operator="Exists"),)
    yield "tolerate everything", _spec(tolerations=anything)
    yield "no node selector", _spec(node_selector={})
    yield "no affinity", _spec(affinity=None)
    yield "no spread", _spec(topology_spread_constraints=())
    yield "no gates", _spec(scheduling_gates=())
    for share in (1, 2, 3, 4, 5, 6, 7, 8):
        yield f"{share} cpu", _spec(containers=lambda spec, share=share: _with_cpu(spec, share))
    yield "no ports", _spec(containers=lambda spec: tuple(replace(c, ports=()) for c in spec.containers))


def _with_cpu(spec: Any, cpus: int) -> Any:
    (only,) = spec.containers
    requests = {**only.resources.requests}
    if "cpu" in requests and requests["cpu"] > Quantity.of(cpus):
        requests["cpu"] = Quantity.of(cpus)
    return (replace(only, resources=replace(only.resources, requests=requests)),)


def _claim_changes(state: ClusterState, pod: Pod) -> Iterator[tuple[str, Change]]:
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or ""
        claim = state.objects.find(ResourceClaim, pod.metadata.namespace, name)
        if claim is None:
            continue
        yield f"{name}: no constraints", _claim(name, lambda devices: replace(devices, constraints=()))
        for request in claim.spec.devices.requests:
            anything = (DeviceToleration(operator="Exists"),)
            fields: list[dict[str, Any]] = [{"selectors": ()}, {"tolerations": anything}, {"capacity": None}]
            fields += [{"allocation_mode": "ExactCount", "count": count} for count in (1, 2, 3)]
            for each in fields:
                yield f"{name}/{request.name}: {each}", _claim(name, _request(request.name, each))


def _claim(name: str, edit: Callable[[Any], Any]) -> Change:
    def change(state: ClusterState, pod: Pod) -> Pod:
        claim = state.objects.find(ResourceClaim, pod.metadata.namespace, name)
        assert claim is not None
        state.set(replace(claim, spec=replace(claim.spec, devices=edit(claim.spec.devices))))
        return pod

    return change


def _request(name: str, fields: dict[str, Any]) -> Callable[[Any], Any]:
    def edit(devices: Any) -> Any:
        requests = tuple(
            replace(each, exactly=replace(each.exactly, **fields))
            if each.name == name and each.exactly is not None
            else each
            for each in devices.requests
        )
        return replace(devices, requests=requests)

    return edit


def _node_changes(state: ClusterState) -> Iterator[tuple[str, Change]]:
    for node in state.nodes:
        for fields in ({"unschedulable": False, "taints": ()},):

            def heal(state: ClusterState, pod: Pod, node: Any = node, fields: Any = fields) -> Pod:
                state.set(replace(node, spec=replace(node.spec, **fields)))
                return pod

            yield f"{node.metadata.name}: healthy", heal
    bound = [pod for pod in state.pods if pod.spec.node_name]
    for victim in bound:

        def remove(state: ClusterState, pod: Pod, victim: Pod = victim) -> Pod:
            state.remove(victim)
            for claim in list(state.objects.all(ResourceClaim)):
                users = claim.status.reserved_for
                if users and all(user.uid == victim.metadata.uid for user in users):
                    status = replace(claim.status, allocation=None, reserved_for=())
                    state.set(replace(claim, status=status))
            return pod

        yield f"without {victim.metadata.name}", remove
