"""Container spec combined from the pod, CDI files and hooks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.hooks import AdjustedContainer, DeviceEdit, MountEdit
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime.container_spec import combine
from plimsoll.protocols.cdi import DeviceNode, Edits, Hook, IntelRdt, Mount, NetDevice

from .runtime_harness import a_container

_names = st.sampled_from("ABC")
_env = st.dictionaries(_names, st.sampled_from(["1", "2", ""]))


@given(_env, st.lists(st.tuples(_names, st.sampled_from("xyz"))), _env, st.frozensets(_names))
def test_later_edits_override_earlier_ones(
    own: dict[str, str], edits: list[tuple[str, str]], hooks: dict[str, str], unset: frozenset[str]
) -> None:
    resolved = combine(
        a_container("true", env=own),
        Edits(env=tuple(f"{name}={value}" for name, value in edits)),
        AdjustedContainer(resources=LinuxResources(), env=hooks, unset=unset),
    )
    for name in "ABC":
        words = [own.get(name), *(value for key, value in edits if key == name)]
        words = [None] if name in unset else [word for word in words if word is not None]
        expected = hooks.get(name, words[-1] if words else None)
        assert resolved.spec.env.get(name) == expected


def test_cdi_edits_and_nri_adjustments_are_combined() -> None:
    edits = Edits(
        mounts=(Mount(host_path="/a", container_path="/b", type="bind", options=("ro",)),),
        device_nodes=(
            DeviceNode(path="/dev/a", host_path="/dev/b", type="c", major=1, minor=2, file_mode=6),
        ),
        additional_gids=(0, 5, 5),
    )
    adjusted = AdjustedContainer(
        resources=LinuxResources(cpus="1"),
        command=("other",),
        mounts=(MountEdit("/c", "/d"),),
        devices=(DeviceEdit("/dev/c"),),
        oom_score_adj=-3,
        annotations={"a": "b"},
    )
    resolved = combine(a_container("true"), edits, adjusted)
    assert resolved.spec.command == ("other",)
    assert resolved.mounts == (MountEdit("/a", "/b", "bind", ("ro",)), MountEdit("/c", "/d"))
    assert resolved.devices == (
        DeviceEdit("/dev/a", "/dev/b", "c", 1, 2, 6, None, None),
        DeviceEdit("/dev/c"),
    )
    assert (resolved.gids, resolved.oom_score_adj, resolved.annotations) == ((5,), -3, {"a": "b"})
    plain = combine(a_container("true"), Edits(), AdjustedContainer(resources=LinuxResources()))
    assert (plain.spec.command, plain.oom_score_adj, plain.notes) == (("true",), 900, ())


def test_unsupported_process_settings_are_reported() -> None:
    edits = Edits(
        hooks=(Hook(hook_name="createContainer", path="/bin/hook"),),
        intel_rdt=IntelRdt(clos_id="a"),
        net_devices=(NetDevice(host_interface_name="eth1", name="net0"),),
    )
    notes = combine(a_container("true"), edits, AdjustedContainer(resources=LinuxResources())).notes
    assert [note.split()[1:3] for note in notes] == [
        ["CDI", "hooks"],
        ["intelRdt", "is"],
        ["netDevices", "are"],
    ]
