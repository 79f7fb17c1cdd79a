"""Claim configuration: sources, requests, keys, and every error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import DeviceAllocationConfiguration, ResourceClaim
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.claim_config import (
    ClaimConfig,
    ConfigFault,
    ConfigFaultKind,
    read_claim_config,
)
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.plugin import AllocatedClaim, ClaimRef

MACHINE = CpuSettings("n", group_by=GroupBy.MACHINE)
NUMA = CpuSettings("n")
SINGLE = CpuSettings("n", mode=DeviceMode.INDIVIDUAL, group_by=GroupBy.MACHINE)
USUAL = AssignOptions()


def raw(parameters: Any, *requests: str, source: str = "FromClaim", driver: str = "dra.cpu") -> Any:
    tree = {"source": source, "requests": list(requests)}
    return tree | {"opaque": {"driver": driver, "parameters": parameters}}


def config(*requests: str, source: str = "FromClaim", driver: str = "dra.cpu", **keys: Any) -> Any:
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": keys}
    return raw(parameters, *requests, source=source, driver=driver)


def read(*configs: Any, request: str = "r", settings: CpuSettings = MACHINE) -> ClaimConfig | ConfigFault:
    return read_claim_config(
        [convert(tree, DeviceAllocationConfiguration) for tree in configs], request, settings
    )


def fault(*configs: Any, request: str = "r", settings: CpuSettings = MACHINE) -> ConfigFault:
    found = read(*configs, request=request, settings=settings)
    assert isinstance(found, ConfigFault), found
    assert str(found) == found.text
    return found


# -- selection of configurations


def test_a_claim_without_configuration_has_the_drivers_defaults() -> None:
    options = AssignOptions(algorithm=Algorithm.DISTRIBUTED)
    assert read(settings=CpuSettings("n", assign=options)) == ClaimConfig(options)


def test_machine_mode_without_a_cpuset_is_no_fault() -> None:
    assert read() == ClaimConfig(USUAL)
    assert read(config(mix=True)) == ClaimConfig(USUAL, include_shared=True)


@pytest.mark.parametrize(
    ("requests", "request_", "counts"),
    [
        ((), "r", True),
        ((), "a/b", True),
        (("r",), "r", True),
        (("x", "r"), "r", True),
        (("x",), "r", False),
        (("a",), "a/b", True),
        (("a/b",), "a/b", True),
        (("a/c",), "a/b", False),
        (("a/b",), "a", False),
    ],
)
def test_configurations_select_requests(requests: tuple[str, ...], request_: str, counts: bool) -> None:
    found = read(config(*requests, cpuset="2-5"), request=request_)
    assert found == ClaimConfig(USUAL, CpuSet([2, 3, 4, 5]) if counts else None)


def test_configurations_of_other_drivers_do_not_count() -> None:
    assert read(raw("nonsense", driver="gpu.example.com")) == ClaimConfig(USUAL)
    assert read({"source": "FromClaim"}) == ClaimConfig(USUAL)


# -- CPUs by name


def test_each_request_has_its_own_cpuset() -> None:
    configs = (config("a", cpuset="0-1"), config("b", cpuset="2"))
    assert read(*configs, request="a") == ClaimConfig(USUAL, CpuSet([0, 1]))
    assert read(*configs, request="b") == ClaimConfig(USUAL, CpuSet([2]))


def test_a_cpuset_of_a_class_is_refused() -> None:
    assert fault(config(source="FromClass", cpuset="0")).text == (
        "opaque config: configuration from DeviceClass is not supported by this driver, "
        "custom cpusets must be defined per ResourceClaim request"
    )


def test_a_request_has_one_cpuset() -> None:
    found = fault(config("r", cpuset="0"), config(cpuset="1"))
    assert (found.kind, found.count, found.request) == (ConfigFaultKind.COUNT, 2, "r")
    assert found.text == (
        'opaque config: request "r" is targeted by 2 configurations, must be targeted by exactly 1'
    )
    assert read(config("r", cpuset="0"), config(algorithm="distributed")) == ClaimConfig(
        AssignOptions(algorithm=Algorithm.DISTRIBUTED), CpuSet([0])
    )


@pytest.mark.parametrize("settings", [NUMA, SINGLE, CpuSettings("n", group_by=GroupBy.SOCKET)])
def test_a_cpuset_is_ignored_outside_machine_mode(settings: CpuSettings) -> None:
    assert read(config(cpuset="0-1"), config(cpuset="bad"), settings=settings) == ClaimConfig(USUAL)
    assert read(config(source="FromClass", cpuset="0"), settings=settings) == ClaimConfig(USUAL)


@pytest.mark.parametrize("keys", [{}, {"cpuset": ""}, {"cpuset": None}])
def test_an_empty_configuration_of_a_machine(keys: dict[str, Any]) -> None:
    assert fault(config(**keys)).text == "opaque config: cpuConfig.cpuset is empty or missing"
    assert fault(raw({"apiVersion": "v1alpha1"})).kind is ConfigFaultKind.EMPTY_CPUSET
    assert read(config(**keys), settings=NUMA) == ClaimConfig(USUAL)


def test_invalid_cpusets_are_refused() -> None:
    found = fault(config(cpuset="2-x"))
    assert found.kind is ConfigFaultKind.BAD_CPUSET
    assert found.text.startswith('opaque config: failed to parse cpuset "2-x": ')
    assert "cpuConfig.cpuset must be a string, not 3" in fault(config(cpuset=3)).text


# -- CPU selection


@pytest.mark.parametrize("settings", [NUMA, MACHINE, SINGLE])
def test_every_key_in_every_mode(settings: CpuSettings) -> None:
    keys: dict[str, Any] = {"algorithm": "distributed", "sorting": "spread", "groupSize": 2, "alignL3": False}
    wanted = AssignOptions(Algorithm.DISTRIBUTED, Sorting.SPREAD, 2, False, True)
    found = read(config(**keys, fullCores=True, mix=False), settings=settings)
    assert found == ClaimConfig(wanted, None, False)


def test_the_claims_configuration_overrides_the_classs() -> None:
    of_class = config(source="FromClass", algorithm="distributed", groupSize=4, mix=True)
    of_claim = config(groupSize=2, mix=False)
    for configs in ((of_class, of_claim), (of_claim, of_class)):
        found = read(*configs, settings=NUMA)
        assert found == ClaimConfig(AssignOptions(Algorithm.DISTRIBUTED, group_size=2), None, False)
    assert read(of_class, config(cpuset="1")) == ClaimConfig(
        AssignOptions(Algorithm.DISTRIBUTED, group_size=4), CpuSet([1]), True
    )


def test_the_last_configuration_of_a_claim_wins() -> None:
    found = read(config(sorting="spread"), config("r", sorting="packed"), settings=NUMA)
    assert found == ClaimConfig(USUAL)


# -- faults


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (None, "failed to unmarshal opaque config: must be an object, not None"),
        ([1], "failed to unmarshal opaque config: must be an object, not [1]"),
        ("x" * 99, "failed to unmarshal opaque config: must be an object, not 'xxx"),
        ({}, 'unsupported opaque config apiVersion: ""'),
        ({"apiVersion": "v2"}, 'unsupported opaque config apiVersion: "v2"'),
        ({"apiVersion": 1}, 'unsupported opaque config apiVersion: "1"'),
        ({"apiVersion": "v1alpha1", "cpuConfig": []}, "cpuConfig must be an object, not []"),
    ],
)
@pytest.mark.parametrize("settings", [NUMA, MACHINE])
def test_malformed_parameters_are_refused(parameters: Any, expected: str, settings: CpuSettings) -> None:
    assert expected in fault(raw(parameters), settings=settings).text


def test_unknown_keys_are_refused_with_the_fix() -> None:
    assert fault(config(cpuSet="0")).text == 'opaque config: unknown field "cpuSet"; use "cpuset"'
    known = "cpuset, algorithm, sorting, groupSize, alignL3, fullCores, alignBySocket, mix"
    assert fault(config(cpus=1)).text == f'opaque config: unknown field "cpus"; valid fields: {known}'
    found = fault(raw({"apiVersion": "v1alpha1", "cpuconfig": {}}))
    assert found.text == 'opaque config: unknown field "cpuconfig"; use "cpuConfig"'


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("algorithm", "fast", "cpuConfig.algorithm must be one of packed, distributed, not 'fast'"),
        ("sorting", 1, "cpuConfig.sorting must be one of packed, spread, not 1"),
        ("groupSize", 0, "cpuConfig.groupSize must be a whole number from 1 to 4096, not 0"),
        ("groupSize", True, "cpuConfig.groupSize must be a whole number from 1 to 4096, not True"),
        ("groupSize", 4097, "from 1 to 4096, not 4097"),
        ("alignL3", "yes", "cpuConfig.alignL3 must be true or false, not 'yes'"),
        ("fullCores", 1, "cpuConfig.fullCores must be true or false, not 1"),
        ("mix", {}, "cpuConfig.mix must be true or false, not {}"),
    ],
)
def test_invalid_values_are_refused(key: str, value: Any, expected: str) -> None:
    assert expected in fault(config(**{key: value})).text
    assert expected in fault(config(source="FromClass", **{key: value}), settings=NUMA).text


def test_the_configuration_of_an_allocated_claim() -> None:
    claim = AllocatedClaim(
        ClaimRef("ns", "c", "u"),
        ResourceClaim(),
        (),
        (convert(config("r", cpuset="4"), DeviceAllocationConfiguration),),
    )
    assert read_claim_config(claim.config, "r", MACHINE) == ClaimConfig(USUAL, CpuSet([4]))
    assert read_claim_config(claim.config, "s", MACHINE) == ClaimConfig(USUAL)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["apiVersion", "cpuConfig", "cpuset", "mix", "groupSize", "algorithm"]),
            inner | st.just("v1alpha1"),
            max_size=4,
        )
    ),
)


@given(ANY_JSON, st.sampled_from([MACHINE, NUMA, SINGLE]), st.sampled_from(["FromClaim", "FromClass", ""]))
def test_any_parameters_are_read_or_refused(parameters: Any, settings: CpuSettings, source: str) -> None:
    for tree in (parameters, {"apiVersion": "v1alpha1", "cpuConfig": parameters}):
        found = read(raw(tree, source=source), settings=settings)
        assert isinstance(found, ClaimConfig) or found.text
