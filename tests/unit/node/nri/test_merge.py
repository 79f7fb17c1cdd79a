"""Merging of container adjustments of several plugins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.nri import checks, messages
from plimsoll.node.nri.merge import ContainerCreation, ContainerUpdates, NriField, Owners, set_resources
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import edits
from tests.unit.protocols.nri.responses import cpu_resources, pin


def _container(**fields: Any) -> nri.Container:
    return nri.Container(id="c1", env=["A=1", "B=2"], annotations={"old": "1"}, **fields)


def _answer(**fields: Any) -> nri.CreateContainerResponse:
    return nri.CreateContainerResponse(adjust=nri.ContainerAdjustment(**fields))


def _env(*pairs: tuple[str, str]) -> nri.CreateContainerResponse:
    return _answer(env=[nri.KeyValue(key=key, value=value) for key, value in pairs])


def _updates(*pairs: tuple[str, nri.LinuxResources]) -> list[nri.ContainerUpdate]:
    return [edits.update(id, resources) for id, resources in pairs]


CONFLICTS = [
    (pin("1"), "CPUSetCPUs"),
    (pin("", "1"), "CPUSetMems"),
    (_env(("X", "1")), "Env X"),
    (_answer(annotations={"k": "v"}), "Annotations k"),
    (_answer(args=["sh"]), "Args"),
    (_answer(mounts=[nri.Mount(destination="/m")]), "Mounts /m"),
    (_answer(CDI_devices=[nri.CDIDevice(name="v/c=d")]), "CdiDevices v/c=d"),
    (_answer(linux={"devices": [{"path": "/dev/x"}]}), "Devices /dev/x"),
    (_answer(linux={"oom_score_adj": {"value": 3}}), "OomScoreAdj"),
    (_answer(linux={"resources": {"cpu": {"shares": {"value": 3}}}}), "CPUShares"),
    (_answer(linux={"resources": {"cpu": {"quota": {"value": 0}}}}), "CPUQuota"),
    (_answer(linux={"resources": {"cpu": {"period": {"value": 3}}}}), "CPUPeriod"),
    (_answer(linux={"resources": {"memory": {"limit": {"value": 3}}}}), "MemLimit"),
    (_answer(linux={"resources": {"memory": {"swap": {"value": 3}}}}), "MemSwapLimit"),
    (_answer(linux={"resources": {"pids": {"limit": 3}}}), "PidsLimit"),
    (
        _answer(linux={"resources": {"hugepage_limits": [{"page_size": "2MB", "limit": 1}]}}),
        "HugepageLimits 2MB",
    ),
    (_answer(linux={"resources": {"unified": {"memory.high": "1"}}}), "CgroupsUnified memory.high"),
    (_answer(linux={"resources": {"rdt_class": {"value": "x"}}}), "RdtClass"),
]


@pytest.mark.parametrize(("response", "field"), CONFLICTS, ids=[field for _, field in CONFLICTS])
def test_two_plugins_cannot_set_the_same_field(response: nri.CreateContainerResponse, field: str) -> None:
    creation = ContainerCreation(_container())
    assert creation.add(response, "10-a") is None
    assert creation.add(response, "20-b") == f'plugins "20-b" and "10-a" both tried to set {field}'


def test_plugins_see_the_adjustments_of_earlier_plugins() -> None:
    creation = ContainerCreation(_container())
    assert creation.add(pin("1"), "10-a") is None
    assert creation.add(_env(("A", "9"), ("C", "3")), "20-b") is None
    assert creation.container.linux.resources.cpu.cpus == "1"
    assert list(creation.container.env) == ["B=2", "A=9", "C=3"]
    owners = creation.owners.message().owners["c1"]
    assert owners.simple == {NriField.CPUSetCPUs: "10-a"}
    assert owners.compound[NriField.Env].owners == {"A": "20-b", "C": "20-b"}


def test_a_removed_field_can_be_set_again() -> None:
    creation = ContainerCreation(_container())
    assert creation.add(_env(("X", "1")), "10-a") is None
    assert creation.add(_env(("-X", ""), ("X", "2")), "20-b") is None
    assert messages.read_env(creation.adjust) == ({"X": "2"}, frozenset())
    # A third has not taken it away itself.
    assert creation.add(_env(("X", "3")), "30-c") == 'plugins "30-c" and "20-b" both tried to set Env X'


def test_a_field_of_the_container_can_be_set_after_its_removal() -> None:
    creation = ContainerCreation(_container())
    assert creation.add(_env(("-A", "")), "10-a") is None
    assert messages.read_env(creation.adjust) == ({}, frozenset({"A"}))
    assert list(creation.container.env) == ["B=2"]
    assert creation.add(_env(("A", "2")), "20-b") is None
    assert messages.read_env(creation.adjust) == ({"A": "2"}, frozenset())


def test_a_removed_annotation_is_gone() -> None:
    creation = ContainerCreation(_container())
    assert creation.add(_answer(annotations={"k": "v", "-old": ""}), "10-a") is None
    assert creation.add(_answer(annotations={"-k": ""}), "20-b") is None
    assert messages.read_annotations(creation.adjust) == {}
    assert dict(creation.container.annotations) == {}
    assert creation.add(_answer(annotations={"-k": "", "k": "new"}), "30-c") is None
    assert messages.read_annotations(creation.adjust) == {"k": "new"}


def test_removed_mounts_and_devices() -> None:
    creation = ContainerCreation(_container(mounts=[nri.Mount(destination="/own")]))
    first = _answer(mounts=[{"destination": "/m", "source": "/a"}], linux={"devices": [{"path": "/dev/x"}]})
    assert creation.add(first, "10-a") is None
    second = _answer(
        mounts=[{"destination": "-/m"}, {"destination": "/m", "source": "/b"}, {"destination": "-/own"}],
        linux={"devices": [{"path": "-/dev/x"}]},
    )
    assert creation.add(second, "20-b") is None
    assert [(mount.source, mount.target) for mount in messages.read_mounts(creation.adjust)] == [("/b", "/m")]
    assert [mount.source for mount in creation.container.mounts] == ["/b"]
    assert messages.read_devices(creation.adjust) == ()
    assert not creation.container.linux.devices


def test_arguments_can_be_replaced_with_a_marker() -> None:
    creation = ContainerCreation(_container(args=["a"]))
    assert creation.add(_answer(args=["b"]), "10-a") is None
    assert creation.add(_answer(args=["", "c", "d"]), "20-b") is None
    assert list(creation.adjust.args) == ["c", "d"]
    assert list(creation.container.args) == ["c", "d"]


def test_an_empty_set_of_cpus_changes_nothing() -> None:
    creation = ContainerCreation(_container())
    assert creation.add(pin("1"), "10-a") is None
    assert creation.add(pin(""), "20-b") is None
    assert creation.adjust.linux.resources.cpu.cpus == "1"


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (pin("garbage"), "cpus: 'garbage' is not a list"),
        (_env(("X=Y", "1")), "env: 'X=Y' cannot be set"),
        (_env(("X", "\0")), "env: 'X' cannot be set"),
        (_answer(args=["\0"]), "args: an argument cannot contain a zero byte"),
        (_answer(mounts=[{"destination": "relative"}]), "mounts: 'relative' is not a path"),
        (_answer(linux={"devices": [{"path": "x"}]}), "devices: 'x' is not a path"),
        (_answer(linux={"oom_score_adj": {"value": 1001}}), "oom_score_adj: 1001 is out of range"),
        (_answer(linux={"resources": {"unified": {"../x": "1"}}}), "unified: '../x' is not a cgroup file"),
    ],
)
def test_harmful_adjustments_are_refused(response: nri.CreateContainerResponse, text: str) -> None:
    fault = ContainerCreation(_container()).add(response, "10-a")
    assert fault is not None
    assert fault.startswith(f'plugin "10-a": {text}')


def test_the_container_being_created_cannot_be_updated() -> None:
    creation = ContainerCreation(_container())
    response = nri.CreateContainerResponse(update=_updates(("c1", cpu_resources("1"))))
    assert creation.add(response, "10-a") == 'plugin "10-a" asked update of "c1" during creation'


def test_updates_of_other_containers_are_merged() -> None:
    changes = ContainerUpdates(Owners())
    assert changes.add(_updates(("x", cpu_resources("1"))), "10-a") is None
    assert changes.add(_updates(("x", cpu_resources("", "0")), ("y", nri.LinuxResources())), "20-b") is None
    assert changes.add(_updates(("x", cpu_resources("2"))), "30-c") == (
        'plugins "30-c" and "10-a" both tried to set CPUSetCPUs'
    )
    ignored = [edits.update("x", cpu_resources("2"), ignore_failure=True)]
    assert changes.add(ignored, "30-c") is None
    found = {update.container_id: update for update in changes.messages()}
    assert found["x"].linux.resources == cpu_resources("1", "0")
    assert not found["x"].ignore_failure
    assert found.keys() == {"x", "y"}


def test_pids_count_in_updates() -> None:
    requested = nri.LinuxResources(pids={"limit": 10})
    changes = ContainerUpdates(Owners(), "x", requested)
    assert changes.add(_updates(("x", cpu_resources("1"))), "10-a") is None
    assert changes.add(_updates(("x", nri.LinuxResources(pids={"limit": 5}))), "20-b") is None
    assert requested.pids.limit == 5
    assert requested.cpu.cpus == "1"


numbers = st.none() | st.integers(0, 3)
sets = st.sampled_from(["", "0", "1"])
resources = st.builds(
    lambda shares, quota, limit, pids, cpus, mems, pages, unified: _resources(
        shares, quota, limit, pids, cpus, mems, pages, unified
    ),
    numbers,
    numbers,
    numbers,
    numbers,
    sets,
    sets,
    st.dictionaries(st.sampled_from(["2MB", "1GB"]), st.integers(0, 2)),
    st.dictionaries(st.sampled_from(["a.b", "c.d"]), st.sampled_from(["x", "y"])),
)


def _resources(
    shares: int | None,
    quota: int | None,
    limit: int | None,
    pids: int | None,
    cpus: str,
    mems: str,
    pages: dict[str, int],
    unified: dict[str, str],
) -> nri.LinuxResources:
    message = nri.LinuxResources(unified=unified)
    message.cpu.cpus, message.cpu.mems = cpus, mems
    for part, value in (
        (message.cpu.shares, shares),
        (message.cpu.quota, quota),
        (message.memory.limit, limit),
    ):
        if value is not None:
            part.SetInParent()
            part.value = value
    if pids is not None:
        message.pids.SetInParent()
        message.pids.limit = pids
    for size, bytes_ in pages.items():
        message.hugepage_limits.add(page_size=size, limit=bytes_)
    return message


def _flat(message: nri.LinuxResources) -> dict[str, Any]:
    """Return the fields that are set, by name: the naive view."""
    read = messages.read_resources(message)
    flat: dict[str, Any] = {
        name: getattr(read, name)
        for name in ("cpu_shares", "cpu_quota", "memory_limit", "pids")
        if getattr(read, name) is not None
    }
    flat |= {name: getattr(read, name) for name in ("cpus", "mems") if getattr(read, name)}
    flat |= {f"pages {size}": value for size, value in read.huge_pages.items()}
    return flat | {f"file {key}": value for key, value in read.unified.items()}


@given(resources, resources)
def test_merging_resources_overwrites_set_fields(
    target: nri.LinuxResources, adjustment: nri.LinuxResources
) -> None:
    want = _flat(target) | _flat(adjustment)
    set_resources(target, adjustment)
    assert _flat(target) == want


@given(st.lists(resources, max_size=4))
def test_merging_is_overwriting_without_overlap(wishes: list[nri.LinuxResources]) -> None:
    creation = ContainerCreation(_container())
    want: dict[str, Any] = {}
    for number, adjustment in enumerate(wishes):
        conflict = creation.add(edits.creation(edits.adjustment(resources=adjustment)), f"{number}0-p")
        assert (conflict is not None) == bool(want.keys() & _flat(adjustment).keys())
        if conflict is not None:
            return
        want |= _flat(adjustment)
    assert _flat(creation.adjust.linux.resources) == want
    assert _flat(creation.container.linux.resources) == want


edit_lists = st.lists(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(["A", "B", "C"]), st.sampled_from(["1", "2"])), max_size=4
    ),
    max_size=4,
)


@given(edit_lists)
def test_merged_variables_equal_sequential_application(
    plugins: list[list[tuple[bool, str, str]]],
) -> None:
    """Naively: removals of a plugin first, then its settings; a conflict if another plugin owns a name."""
    creation = ContainerCreation(_container())
    env, owner = {"A": "1", "B": "2"}, {}
    for number, wishes in enumerate(plugins):
        name = f"{number}0-p"
        pairs = [("-" + key, "") if remove else (key, value) for remove, key, value in wishes]
        removed = {key for remove, key, _ in wishes if remove}
        added = [(key, value) for remove, key, value in wishes if not remove]
        for key in removed:
            env.pop(key, None)
            if key in owner:
                owner[key] = f"-{name}"
        clash = False
        for key, value in added:
            if owner.get(key, f"-{name}") != f"-{name}":
                clash = True
                break
            owner[key] = name
            env[key] = value
        assert (creation.add(_env(*pairs), name) is not None) == clash
        if clash:
            return
        assert dict(entry.split("=") for entry in creation.container.env) == env
    values, unset = messages.read_env(creation.adjust)
    assert {key: value for key, value in {"A": "1", "B": "2", **values}.items() if key not in unset} == env


texts = st.sampled_from(["", "-", "-x", "x", "/x", "-/x", "../x", "a.b", "0-1", "2MB", "\0", "é" * 50, "c1"])


def _fill(draw: st.DataObject, message: Any, depth: int = 0) -> None:
    """Set some fields of a message to random values."""
    fields = list(message.DESCRIPTOR.fields)
    for field in draw.draw(st.lists(st.sampled_from(fields), max_size=4, unique=True)) if fields else []:
        held = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is None:
                held[draw.draw(texts)] = draw.draw(texts)
        elif field.message_type is not None:
            if depth < 5:
                if not field.is_repeated:
                    held.SetInParent()
                    _fill(draw, held, depth + 1)
                else:
                    for _ in range(draw.draw(st.integers(0, 3))):
                        _fill(draw, held.add(), depth + 1)
        else:
            one = _scalar(draw, field)
            held.append(one) if field.is_repeated else setattr(message, field.name, one)


def _scalar(draw: st.DataObject, field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        return draw.draw(texts)
    if field.cpp_type == field.CPPTYPE_BOOL:
        return draw.draw(st.booleans())
    least = 0 if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else -2
    return draw.draw(st.sampled_from([least, 0, 1, 1000, 2**31 - 1]))


@given(st.data())
def test_any_responses_are_merged_or_refused(draw: st.DataObject) -> None:
    creation = ContainerCreation(_container())
    for name in ("10-a", "20-b"):
        response = nri.CreateContainerResponse()
        _fill(draw, response)
        fault = creation.add(response, name)
        if fault is not None:
            assert isinstance(fault, str)
            return
    messages.read_env(creation.adjust)
    messages.read_mounts(creation.adjust)
    messages.read_devices(creation.adjust)
    messages.read_resources(creation.adjust.linux.resources)
    assert not any("\0" in text for text in (*creation.container.env, *creation.container.args))
    checks.unsupported_fields(creation.adjust)
    nri.ValidateContainerAdjustmentRequest(
        adjust=creation.adjust, update=creation.changes.messages(), owners=creation.owners.message()
    ).SerializeToString()
