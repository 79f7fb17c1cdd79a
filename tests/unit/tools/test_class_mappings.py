"""Suggested mappings of DeviceClasses: applied, every claim is charged what its devices are."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.forms import CLASS_KEY
from plimsoll.api.resource import Device, DeviceClass
from plimsoll.cel import Environment, compile_selector, flatten
from plimsoll.tools.class_mappings import suggest_mappings
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from tests.build import claim, container, device, device_class, exactly, node, pod, resource_slice, result

DRIVER, OTHER, NAME = "dra.cpu", "gpu.example.com", "cpus"
CAPACITY = "dra.cpu/cpu"


def state(*things: Any) -> ClusterState:
    return ClusterState(ClusterObjects(things))


#: Kinds of devices: a group of CPUs that is shared, an exclusive one, one CPU, a counted group.
kinds = st.one_of(
    st.tuples(st.just("shared"), st.integers(1, 9)),
    st.tuples(st.just("exclusive"), st.integers(1, 9)),
    st.tuples(st.just("single"), st.just(1)),
    st.tuples(st.just("counted"), st.integers(1, 3)),
)


def published(number: int, kind: str, cpus: int) -> Any:
    name = f"d{number}"
    if kind in ("shared", "exclusive"):
        return device(name, shared=kind == "shared", capacity={CAPACITY: str(cpus)})
    fields = {"attributes": {f"{DRIVER}/cpuID": {"int": number}}}
    if kind == "counted":
        fields = {"attributes": {f"{DRIVER}/numCPUs": {"int": cpus}}}
    return device(name, fields=fields)


def whole(number: int, kind: str, cpus: int) -> Any:
    taken = result(f"d{number}", DRIVER, "n1")
    if kind == "shared":
        share = f"00000000-0000-4000-8000-{number:012d}"
        taken |= {"shareID": share, "consumedCapacity": {CAPACITY: str(cpus)}}
    return taken


@given(st.lists(kinds, min_size=1, max_size=5), st.booleans())
def test_suggestions_count_every_device_of_their_class(found: list[tuple[str, int]], with_gpus: bool) -> None:
    """A claim for each whole device, by the class that selects it, is charged its CPUs; none is left out."""
    things: list[Any] = [node("n1", cpu="99")]
    devices = [published(number, *each) for number, each in enumerate(found)]
    things.append(resource_slice(devices, driver=DRIVER, pool="n1", node="n1"))
    if with_gpus:
        things.append(resource_slice([device("gpu")], driver=OTHER, pool="n1", node="n1", name="gpus"))
    drivers = f'device.driver in ["{DRIVER}", "{OTHER}"]' if with_gpus else f'device.driver == "{DRIVER}"'
    plain = device_class(NAME, select=drivers)
    mappings = suggest_mappings(state(*things, plain), NAME, DRIVER)
    if not mappings:  # groups that only the driver can map
        assert {kind for kind, _ in found} - {"shared", "single"}
        return
    classes: list[DeviceClass] = []
    for mapping in mappings:
        if mapping.selectors:
            tree = yaml.safe_load("\n".join(mapping.yaml_lines()))
            classes.append(codec.convert(tree, DeviceClass))
        else:
            assert mapping.device_class == NAME
            classes.append(
                replace(plain, metadata=replace(plain.metadata, annotations={CLASS_KEY: mapping.value}))
            )
    for number, (kind, cpus) in enumerate(found):
        charged = []
        flat = flatten(codec.convert(devices[number], Device), DRIVER)
        for each in classes:
            selectors = [part.cel.expression for part in each.spec.selectors if part.cel is not None]
            if all(compile_selector(text, Environment("stored", True)).matches(flat) for text in selectors):
                request = exactly(device_class=each.metadata.name)
                one = claim("c", request, results=[whole(number, kind, cpus)], node="n1", reserved=["p"])
                made = state(*things, *classes, one, pod("p", container("main"), claims=["c"], node="n1"))
                row = made.snapshot.row_of("n1")
                assert row is not None
                charged.append(made.snapshot.ledger(row).requested.get("cpu", 0))
        assert charged == [1000 * cpus], kind
