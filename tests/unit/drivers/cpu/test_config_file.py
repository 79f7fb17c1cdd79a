"""Settings of the CPU driver: keys, flags, precedence, and errors with their fixes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.api.quantity import Quantity
from plimsoll.common.yaml import load_documents
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.config_file import FLAGS, FLAGS_ONLY, KEYS, dump_settings, read_settings
from plimsoll.drivers.cpu.settings import (
    CpuOverhead,
    CpuSettings,
    DeviceMode,
    GroupBy,
    Mapping,
    PinEnforcement,
    PinSettings,
    RequestPolicy,
)
from plimsoll.errors import ConfigError

EXAMPLE = Path(__file__).parents[4] / "docs" / "cpu-config.yaml"


def write(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(text)
    return path


def read(directory: Path, text: str, **flags: Any) -> CpuSettings:
    return read_settings(write(directory, text), flags, hostname="n")


def refused(directory: Path, text: str, **flags: Any) -> str:
    path = write(directory, text)
    with pytest.raises(ConfigError) as caught:
        read_settings(path, {name.replace("_", "-"): value for name, value in flags.items()}, hostname="n")
    return str(caught.value).replace(str(path), "FILE")


# -- defaults < file < flags


def test_defaults() -> None:
    assert read_settings(None, {}, hostname="Node-A ") == CpuSettings(node="node-a")
    assert read_settings(None).node


def test_a_file_overrides_defaults_and_flags_override_the_file(tmp_path: Path) -> None:
    text = 'apiVersion: v1alpha1\ncpuDeviceMode: individual\nreservedCPUs: "0-1"\nhostnameOverride: B\n'
    from_file = read(tmp_path, text)
    assert (from_file.mode, from_file.reserved, from_file.node) == (
        DeviceMode.INDIVIDUAL,
        CpuSet([0, 1]),
        "b",
    )
    flags = {"cpu-device-mode": "grouped", "group-by": "socket", "hostname-override": None}
    both = read_settings(write(tmp_path, text), flags, hostname="n")
    assert (both.mode, both.group_by, both.reserved, both.node) == (
        DeviceMode.GROUPED,
        GroupBy.SOCKET,
        CpuSet([0, 1]),
        "b",
    )


def test_a_flag_overrides_its_alternative_key(tmp_path: Path) -> None:
    path = write(tmp_path, "reservedCPUCount: 2\npublishNodeAllocatableResourceMapping: false\n")
    assert read_settings(path, {}, hostname="n").reserved == 2
    flags = {"reserved-cpus": "3", "node-allocatable-form": "1.36"}
    found = read_settings(path, flags, hostname="n")
    assert (found.reserved, found.mapping) == (CpuSet([3]), Mapping.V1_36)


def test_flags_are_parsed_from_strings() -> None:
    flags = {
        "bind-address": ":9000",
        "expose-pcie-roots": "true",
        "kubelet-root-dir": "/mnt//data/../kubelet/",
        "min-shared-cpus": "2",
        "memory-nodes": "f",
        "host-root": "/host",
        "kubeconfig": "/k",
        "enforcement": "cgroups",
    }
    found = read_settings(None, flags, hostname="n")
    assert found == CpuSettings(
        node="n",
        bind_address=":9000",
        pcie_roots=True,
        kubelet_root=Path("/mnt/kubelet"),
        min_shared=2,
        host_root=Path("/host"),
        kubeconfig="/k",
        pin=PinSettings(enforcement=PinEnforcement.CGROUPS),
    )


def test_an_unknown_flag_is_reported() -> None:
    with pytest.raises(ConfigError, match="--group: unknown flag; valid flags: --allow-empty"):
        read_settings(None, {"group": "x"}, hostname="n")


def test_every_key_of_the_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
apiVersion: v1alpha1
cpuDeviceMode: grouped
groupBy: l3cache
reservedCPUCount: 2
minSharedCPUs: 3
sharedCPUs: "8-9"
hostnameOverride: worker-1
kubeconfig: /etc/k
sysfsOverlay: /o.yaml
nodeAllocatableForm: 1.36
overhead: {perPod: 100m, perContainer: 0.5}
requestPolicy: {publish: true, default: 1}
assignment:
  {algorithm: distributed, sorting: spread, groupSize: 2, alignL3: false, fullCores: true, quirks: false}
enforcement: nri
memoryNodes: true
liftCFSQuota: true
exclusivePlusShared: true
shareAcrossPods: true
shareAcrossContainers: false
allowEmptySharedPool: true
requestsApart: true
updateRunning: never
failClosed: false
reportCPUs: false
hostRoot: /host
cdiDir: /cdi
nriSocket: /nri.sock
""",
    )
    assert found == CpuSettings(
        node="worker-1",
        group_by=GroupBy.L3,
        reserved=2,
        min_shared=3,
        shared=CpuSet([8, 9]),
        mapping=Mapping.V1_36,
        overhead=CpuOverhead(Quantity.parse("100m"), Quantity.parse("0.5")),
        policy=RequestPolicy(default=1),
        assign=AssignOptions(Algorithm.DISTRIBUTED, Sorting.SPREAD, 2, False, True, False),
        pin=PinSettings(PinEnforcement.NRI, True, True, True, True, False, True, True, False, False),
        host_root=Path("/host"),
        overlay=Path("/o.yaml"),
        cdi=Path("/cdi"),
        nri=Path("/nri.sock"),
        kubeconfig="/etc/k",
        report_cpus=False,
    )


def test_an_empty_file_and_nulls_change_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "groupBy: null\n") == CpuSettings(node="n")


def test_mapping_is_automatic_unless_disabled(tmp_path: Path) -> None:
    key = "publishNodeAllocatableResourceMapping"
    assert read(tmp_path, "").mapping is Mapping.AUTO
    assert read(tmp_path, f"{key}: true").mapping is Mapping.AUTO
    assert read(tmp_path, f"{key}: false").mapping is Mapping.OFF
    assert read(tmp_path, f"{key}: true\nnodeAllocatableForm: 1.37").mapping is Mapping.V1_37
    assert read(tmp_path, "nodeAllocatableForm: off").mapping is Mapping.OFF


# -- errors

REFUSED = [
    ("apiVersion: v2", 'cannot apply FILE: unsupported apiVersion "v2", want "v1alpha1"'),
    ("apiVersion: 1", 'cannot apply FILE: unsupported apiVersion "", want "v1alpha1"'),
    (
        "CpuDeviceMode: grouped\nGROUPBY: socket",
        'cannot apply FILE: field "CpuDeviceMode" is spelled differently from the schema; use "cpuDeviceMode"'
        '; field "GROUPBY" is spelled differently from the schema; use "groupBy"',
    ),
    (
        "ApiVersion: v1alpha1",
        'cannot apply FILE: field "ApiVersion" is spelled differently from the schema; use "apiVersion"',
    ),
    (
        "bindAddress: :1",
        'cannot apply FILE: field "bindAddress" is not configurable via the config file; '
        "use --bind-address instead",
    ),
    (
        "ExposePcieRoots: true",
        'cannot apply FILE: field "ExposePcieRoots" is not configurable via the config file; '
        "use --expose-pcie-roots instead",
    ),
    ("kubeletRootDir: /x", "use --kubelet-root-dir instead"),
    (
        "reservedCpuz: '0'",
        'cannot apply FILE: unknown field "reservedCpuz"; valid fields: cpuDeviceMode, groupBy',
    ),
    (
        "cpuDeviceMode: x",
        'cannot validate config: invalid cpuDeviceMode "x": must be "grouped" or "individual"',
    ),
    (
        "groupBy: numa",
        'cannot validate config: invalid groupBy "numa": must be "numanode", "socket", "l3cache", '
        '"pcieroot", or "machine"',
    ),
    ("groupBy: 3", "cannot apply FILE: groupBy: must be a string, not 3; write it in quotes"),
    ("reservedCPUs: 3", 'must be a list of CPUs in quotes such as "0-1,8", not 3; for a number of CPUs'),
    ("reservedCPUs: 0-x", "failed to parse reserved CPUs: "),
    ("sharedCPUs: a", "failed to parse shared CPUs: "),
    ("reservedCPUs: '0'\nreservedCPUCount: 1", "set reservedCPUs or reservedCPUCount, not both"),
    (
        "reservedCPUCount: -1",
        "cannot apply FILE: reservedCPUCount: must be a number of CPUs, 0 or more, not -1",
    ),
    ("minSharedCPUs: 1.5", "must be auto or a number of CPUs, 0 or more, not 1.5"),
    ("minSharedCPUs: '2'", "must be auto or a number of CPUs, 0 or more, not '2'"),
    ("memoryNodes: 1", "cannot apply FILE: memoryNodes: must be true or false, not 1"),
    ("enforcement: yes", "enforcement: must be one of auto, nri, cgroups, not True"),
    ("nodeAllocatableForm: 1.35", "nodeAllocatableForm: must be one of auto, off, 1.36, 1.37, not 1.35"),
    (
        "publishNodeAllocatableResourceMapping: false\nnodeAllocatableForm: 1.36",
        "publishNodeAllocatableResourceMapping is false and nodeAllocatableForm 1.36: remove one of them",
    ),
    (
        "publishNodeAllocatableResourceMapping: true\nnodeAllocatableForm: off",
        "publishNodeAllocatableResourceMapping is true and nodeAllocatableForm off",
    ),
    ("overhead: {perPod: -1}", "overhead.perPod: must not be negative, not -1"),
    ("overhead: {perPod: many}", "overhead.perPod: 'many' is not a quantity"),
    ("overhead: {perpod: 1}", "overhead.perpod: unknown field; valid fields: perPod, perContainer"),
    ("overhead: 3", "overhead: must be a mapping of settings, not 3"),
    (
        "requestPolicy: {default: 0}",
        "requestPolicy.default: must be all or a number of CPUs from 1 on, not 0",
    ),
    ("requestPolicy: {default: none}", "must be all or a number of CPUs from 1 on, not 'none'"),
    ("assignment: {algorithm: fast}", "assignment.algorithm: must be one of packed, distributed, not 'fast'"),
    ("assignment: {groupSize: 0}", "assignment.groupSize: must be a whole number from 1 to 4096, not 0"),
    ('hostRoot: "/a\\0"', "hostRoot: must be a string without control characters, not '/a\\x00'"),
    ("- a", "cannot apply FILE: must be a mapping of settings"),
    ("a: [", "FILE: "),
    ("groupBy: socket\ngroupBy: machine", "groupBy"),
    ("---\ngroupBy: socket\n---\ngroupBy: socket", "must be one document, found 2"),
    ("hostnameOverride: ' '", "can not obtain the node name, use the hostname-override flag"),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED, ids=[text for text, _ in REFUSED])
def test_invalid_keys_and_values_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refused(tmp_path, text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_settings(tmp_path / "none.yaml", {}, hostname="n")


def test_group_by_does_not_matter_for_individual_cpus(tmp_path: Path) -> None:
    assert read(tmp_path, "cpuDeviceMode: individual\ngroupBy: whatever").mode is DeviceMode.INDIVIDUAL


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("", "cannot validate config: invalid kubeletRootDir: must not be empty"),
        ("var/lib", 'cannot validate config: invalid kubeletRootDir "var/lib": must be an absolute path'),
        (
            "/" + "k" * 75,
            "is 110 bytes, over the 107-byte limit for a Unix socket path: kubeletRootDir has 73 bytes to "
            "spend and is using 76",
        ),
        ("/" + "ü" * 38, "and is using 77"),
    ],
)
def test_invalid_kubelet_roots_are_refused(tmp_path: Path, root: str, expected: str) -> None:
    assert expected in refused(tmp_path, "", kubelet_root_dir=root)
    assert str(read_settings(None, {"kubelet-root-dir": "/" + "k" * 72}, hostname="n").kubelet_root)


def test_a_machine_without_a_name() -> None:
    with pytest.raises(ConfigError, match="empty hostname is invalid"):
        read_settings(None, {}, hostname="")


# -- complete files


def test_every_key_has_a_flag() -> None:
    assert set(KEYS) - set(FLAGS.values()) == {"overhead", "requestPolicy", "assignment"}
    assert set(FLAGS_ONLY) <= set(KEYS)


def test_the_example_names_every_key_with_its_default() -> None:
    ((_, tree),) = load_documents(EXAMPLE.read_text())
    assert set(tree) == {"apiVersion"} | (set(KEYS) - set(FLAGS_ONLY) - {"hostnameOverride", "reservedCPUs"})
    assert read_settings(EXAMPLE, {}, hostname="n") == CpuSettings(node="n")


ALL = st.builds(
    CpuSettings,
    node=st.sampled_from(["n", "node-a"]),
    mode=st.just(DeviceMode.GROUPED),
    group_by=st.sampled_from(GroupBy),
    reserved=st.integers(0, 9) | st.sets(st.integers(0, 70)).map(CpuSet),
    min_shared=st.none() | st.integers(0, 9),
    shared=st.sets(st.integers(0, 70)).map(CpuSet),
    mapping=st.sampled_from(Mapping),
    overhead=st.builds(CpuOverhead, st.none() | st.just(Quantity.parse("5m")), st.none()),
    policy=st.builds(RequestPolicy, st.booleans(), st.none() | st.integers(1, 9)),
    assign=st.builds(
        AssignOptions,
        st.sampled_from(Algorithm),
        st.sampled_from(Sorting),
        st.integers(1, 9),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    pin=st.builds(PinSettings, st.sampled_from(PinEnforcement), *[st.booleans()] * 7),
)


@given(settings=ALL)
def test_a_dumped_configuration_survives_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, settings: CpuSettings
) -> None:
    dumped = dump_settings(settings)
    flags = {flag: dumped.pop(key) for flag, key in FLAGS.items() if key in FLAGS_ONLY}
    path = write(tmp_path_factory.getbasetemp(), json.dumps(dumped))
    assert read_settings(path, flags, hostname="x") == settings


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
)


@given(tree=st.dictionaries(st.sampled_from([*KEYS, "apiVersion", "x"]), VALUES, max_size=3))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    path = write(tmp_path_factory.getbasetemp(), json.dumps(tree))
    with suppress(ConfigError):
        assert isinstance(read_settings(path, {}, hostname="n"), CpuSettings)
