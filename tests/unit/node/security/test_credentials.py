"""Credentials of containers, and unsupported fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.security.capabilities import DEFAULT, NAMES, SWITCH_USER, mask_of, names_in
from plimsoll.node.security.context import BOTH, CONTAINER_ONLY, POD_ONLY, SecurityRequest
from plimsoll.node.security.credentials import (
    CredentialDecision,
    ProcessCredentials,
    RootViolation,
    compute_credentials,
)
from plimsoll.node.security.rights import AgentRights, read_rights

EVERY = mask_of(NAMES)
ROOT = AgentRights(capabilities=EVERY)
USER = AgentRights(uid=1000, gid=1001, groups=(1001, 1002))
Tree = dict[str, Any]


def judge(
    container: Tree | None = None, pod: Tree | None = None, rights: AgentRights = ROOT
) -> CredentialDecision:
    return compute_credentials(SecurityRequest(pod or {}, container or {}), rights)


def applied(
    container: Tree | None = None, pod: Tree | None = None, rights: AgentRights = ROOT
) -> ProcessCredentials:
    found = judge(container, pod, rights)
    assert (found.unsupported, found.violation) == ((), None)
    return found.credentials


def refused(container: Tree | None = None, pod: Tree | None = None, rights: AgentRights = ROOT) -> list[str]:
    found = judge(container, pod, rights)
    assert all(each.why and each.fix for each in found.unsupported)
    return [each.path.removeprefix("spec.") for each in found.unsupported]


def test_without_a_context_the_user_is_the_agents() -> None:
    assert applied() == ProcessCredentials(uid=0, gid=0, groups=(0,), capabilities=DEFAULT)
    own = ProcessCredentials(uid=1000, gid=1001, groups=(1001, 1002), switch=False)
    assert applied(rights=USER) == own
    # No image has an /etc/group whose groups could be merged.
    for policy in ("Merge", "Strict"):
        assert applied({}, {"supplementalGroupsPolicy": policy}).groups == (0,)


def test_container_settings_override_the_pods() -> None:
    pod = {"runAsUser": 1, "runAsGroup": 2, "supplementalGroups": [5, 4], "fsGroup": 3}
    assert applied({}, pod) == ProcessCredentials(uid=1, gid=2, groups=(2, 3, 4, 5), capabilities=DEFAULT)
    found = applied({"runAsUser": 7, "runAsGroup": None}, pod)
    assert (found.uid, found.gid) == (7, 2)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"add": ["SYS_TIME", "net_admin"]}, DEFAULT | mask_of(("SYS_TIME", "NET_ADMIN"))),
        ({"drop": ["CHOWN"]}, DEFAULT & ~mask_of(("CHOWN",))),
        ({"drop": ["all"]}, 0),
        ({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, mask_of(("NET_BIND_SERVICE",))),
        ({"add": ["ALL"]}, EVERY),
        ({"add": ["ALL"], "drop": ["SYS_ADMIN"]}, EVERY & ~mask_of(("SYS_ADMIN",))),
        ({"add": ["ALL"], "drop": ["ALL"]}, 0),
        ({"add": ["KILL"], "drop": ["KILL"]}, DEFAULT & ~mask_of(("KILL",))),
    ],
)
def test_capabilities_as_containerd_reads_them(context: Tree, expected: int) -> None:
    assert names_in(applied({"capabilities": context}).capabilities) == names_in(expected)
    # A privileged container has all of them, whatever is dropped.
    assert applied({"capabilities": context, "privileged": True}).capabilities == EVERY


def test_unavailable_capabilities() -> None:
    path = "containers[0].securityContext.capabilities"
    assert refused({"capabilities": {"add": ["CAP_KILL", "FLY"]}}) == [f"{path}.add"]
    assert refused({"capabilities": {"drop": ["FLY"]}}) == [f"{path}.drop"]
    fewer = AgentRights(capabilities=SWITCH_USER)
    assert refused({"capabilities": {"add": ["SYS_TIME"]}}, rights=fewer) == [f"{path}.add"]
    # The default set is what the agent has of it.
    assert applied(rights=fewer).capabilities == DEFAULT & SWITCH_USER


@pytest.mark.parametrize(
    ("container", "pod", "path"),
    [
        ({"seLinuxOptions": {"level": "s0"}}, {}, "containers[0].securityContext.seLinuxOptions"),
        ({}, {"seLinuxOptions": {"level": "s0"}}, "securityContext.seLinuxOptions"),
        ({"windowsOptions": {"hostProcess": True}}, {}, "containers[0].securityContext.windowsOptions"),
        ({"procMount": "Default"}, {}, "containers[0].securityContext.procMount"),
        ({}, {"sysctls": [{"name": "net.x", "value": "1"}]}, "securityContext.sysctls"),
        ({}, {"seccompProfile": {"type": "Localhost"}}, "securityContext.seccompProfile"),
        (
            {"appArmorProfile": {"type": "RuntimeDefault"}},
            {},
            "containers[0].securityContext.appArmorProfile",
        ),
        ({}, {"appArmorProfile": {"type": "Localhost"}}, "securityContext.appArmorProfile"),
        ({"somethingNew": 1}, {}, "containers[0].securityContext.somethingNew"),
        ({}, {"somethingNew": False}, "securityContext.somethingNew"),
        ({"fsGroup": 1}, {}, "containers[0].securityContext.fsGroup"),
        ({"runAsUser": -1}, {}, "containers[0].securityContext.runAsUser"),
        ({"runAsUser": True}, {}, "containers[0].securityContext.runAsUser"),
        ({}, {"runAsGroup": 2**31}, "securityContext.runAsGroup"),
        ({}, {"supplementalGroups": ["x"]}, "securityContext.supplementalGroups"),
        ({}, {"supplementalGroupsPolicy": "Some"}, "securityContext.supplementalGroupsPolicy"),
        ({"runAsNonRoot": "yes"}, {}, "containers[0].securityContext.runAsNonRoot"),
        ({"privileged": 1}, {}, "containers[0].securityContext.privileged"),
        ({"capabilities": "ALL"}, {}, "containers[0].securityContext.capabilities"),
    ],
)
def test_fields_that_are_refused(container: Tree, pod: Tree, path: str) -> None:
    assert set(refused(container, pod)) == {path}


@pytest.mark.parametrize(
    ("container", "pod"),
    [
        ({"seLinuxOptions": {}, "windowsOptions": {}, "procMount": "Unmasked"}, {"sysctls": []}),
        ({"seccompProfile": {"type": "Unconfined"}}, {"appArmorProfile": {"type": "Unconfined"}}),
        # The container's word counts.
        ({"seccompProfile": {"type": "Unconfined"}}, {"seccompProfile": {"type": "Localhost"}}),
        # These say how files of volumes are treated, and there are none.
        ({}, {"fsGroupChangePolicy": "OnRootMismatch", "seLinuxChangePolicy": "Recursive"}),
        ({"privileged": False, "readOnlyRootFilesystem": False, "allowPrivilegeEscalation": True}, {}),
        (dict.fromkeys((*BOTH, *CONTAINER_ONLY)), dict.fromkeys((*BOTH, *POD_ONLY))),
    ],
)
def test_fields_with_default_values_are_accepted(container: Tree, pod: Tree) -> None:
    assert applied(container, pod) == applied()


def test_user_namespaces_are_refused() -> None:
    for value, paths in ((False, ["spec.hostUsers"]), (True, []), (None, [])):
        found = compute_credentials(SecurityRequest(host_users=value), ROOT)
        assert [each.path for each in found.unsupported] == paths


def test_no_new_privileges_and_read_only_root() -> None:
    assert applied({"allowPrivilegeEscalation": False}).no_new_privs
    assert applied({"readOnlyRootFilesystem": True}).read_only_root
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    assert applied({}, profile).seccomp
    assert not applied({"privileged": True}, profile).seccomp
    path = "containers[0].securityContext.readOnlyRootFilesystem"
    for rights in (AgentRights(capabilities=EVERY, release=(5, 11)), AgentRights(capabilities=SWITCH_USER)):
        assert refused({"readOnlyRootFilesystem": True}, rights=rights) == [path]
    other = AgentRights(capabilities=EVERY, machine="riscv64")
    assert refused({}, profile, other) == ["securityContext.seccompProfile"]


def test_run_as_non_root() -> None:
    assert judge({"runAsNonRoot": True}).violation is RootViolation.IMAGE
    assert judge({"runAsNonRoot": True, "runAsUser": 0}).violation is RootViolation.RUN_AS_USER
    assert judge({"runAsUser": 0}, {"runAsNonRoot": True}).violation is RootViolation.RUN_AS_USER
    for container, pod in (
        ({"runAsNonRoot": True, "runAsUser": 5}, {}),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}),
        ({"runAsNonRoot": True}, {"runAsUser": 5}),
    ):
        assert judge(container, pod).violation is None
    assert judge({"runAsNonRoot": True}, rights=USER).violation is None
    # Root that may not change its user is still root.
    weak = AgentRights(capabilities=0)
    found = judge({"runAsNonRoot": True, "runAsUser": 5}, rights=weak)
    assert found.violation is RootViolation.IMAGE


def test_an_agent_that_is_not_root() -> None:
    own = {"runAsUser": 1000, "runAsGroup": 1001}
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    found = applied({**own, **restricted}, {"supplementalGroups": [1002], "fsGroup": 1001}, USER)
    assert (found.uid, found.gid, found.switch) == (1000, 1001, False)
    assert found.no_new_privs
    assert found.seccomp
    path = "containers[0].securityContext"
    for context, name in (
        ({"runAsUser": 0}, "runAsUser"),
        ({"runAsGroup": 5}, "runAsGroup"),
        ({"privileged": True}, "privileged"),
        ({"capabilities": {"add": ["NET_BIND_SERVICE"]}}, "capabilities.add"),
        ({"capabilities": {"drop": ["ALL"]}}, "capabilities.drop"),
        ({"readOnlyRootFilesystem": True}, "readOnlyRootFilesystem"),
        ({"seccompProfile": {"type": "RuntimeDefault"}}, "seccompProfile"),
    ):
        assert refused(context, rights=USER) == [f"{path}.{name}"]
        (text,) = (each.why for each in judge(context, rights=USER).unsupported)
        assert "the agent runs as user 1000 without CAP_" in text
    assert refused({}, {"supplementalGroups": [5]}, USER) == ["securityContext.supplementalGroups"]
    assert refused({}, {"fsGroup": 5}, USER) == ["securityContext.fsGroup"]
    strict = {"supplementalGroupsPolicy": "Strict"}
    assert refused({}, strict, USER) == ["securityContext.supplementalGroupsPolicy"]
    assert refused({}, {**strict, "supplementalGroups": [1002]}, USER) == []


def test_rights_are_read_from_the_kernel(tmp_path: Any) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapPrm:\tffff\nCapEff:\t00000000000000ff\nCapBnd:\t000001fffffffff0\n")
    assert read_rights(status).capabilities == 0xF0
    assert read_rights(tmp_path / "absent").capabilities == 0
    assert not read_rights(tmp_path / "absent").can_switch_user
    assert read_rights().release > (2, 6)


# -- a naive twin: each rule on its own, over sets of names

_names = st.sampled_from([*NAMES[:12], "SYS_ADMIN", "ALL", "all", "kill"])
_lists = st.lists(_names, max_size=4)
_ids = st.sampled_from([0, 1000, 1001, 1002, 5])
_flags = st.booleans()
_profiles = st.sampled_from([{"type": name} for name in ("RuntimeDefault", "Unconfined")])
_both = {
    "runAsUser": _ids,
    "runAsGroup": _ids,
    "runAsNonRoot": _flags,
    "seccompProfile": _profiles,
}
_pods = st.fixed_dictionaries(
    {},
    optional={
        **_both,
        "supplementalGroups": st.lists(_ids, max_size=3),
        "fsGroup": _ids,
        "supplementalGroupsPolicy": st.sampled_from(["Merge", "Strict"]),
    },
)
_containers = st.fixed_dictionaries(
    {},
    optional={
        **_both,
        "privileged": _flags,
        "allowPrivilegeEscalation": _flags,
        "readOnlyRootFilesystem": _flags,
        "capabilities": st.fixed_dictionaries({}, optional={"add": _lists, "drop": _lists}),
    },
)
_rights = st.sampled_from(
    [ROOT, USER, AgentRights(), AgentRights(capabilities=SWITCH_USER), AgentRights(capabilities=DEFAULT)]
)


def naive(container: Tree, pod: Tree, rights: AgentRights) -> tuple[Tree, set[str], str | None]:
    """Compute naively the credentials with all unsupported fields left out, the names of these fields, and
    the violation.
    """
    merged = {**pod, **container}
    agent = set(names_in(rights.capabilities))
    root = {"CHOWN", "KILL", "SETGID", "SETUID", "SETPCAP"} <= agent
    out = set()
    if not root:
        for name, own in (("runAsUser", rights.uid), ("runAsGroup", rights.gid)):
            if merged.get(name, own) != own:
                out.add(name)
        for name in ("supplementalGroups", "fsGroup"):
            asked = merged.get(name, [])
            asked = asked if isinstance(asked, list) else [asked]
            if any(group not in rights.groups and group != rights.gid for group in asked):
                out.add(name)
    kept = {name: value for name, value in merged.items() if name not in out}
    uid, gid = kept.get("runAsUser", rights.uid), kept.get("runAsGroup", rights.gid)
    groups = {gid, *kept.get("supplementalGroups", [])} | ({kept["fsGroup"]} if "fsGroup" in kept else set())
    strict = merged.get("supplementalGroupsPolicy") == "Strict"
    if not root and strict and any(group not in groups for group in rights.groups):
        out.add("supplementalGroupsPolicy")
    locked = merged.get("allowPrivilegeEscalation") is False
    lists = merged.get("capabilities", {})
    add, drop = ([each.upper() for each in lists.get(key, [])] for key in ("add", "drop"))
    caps = set(names_in(DEFAULT)) & agent
    if "ALL" in add:
        caps = set(agent)
    if "ALL" in drop:
        caps = set()
    caps |= {each for each in add if each != "ALL"}
    caps -= set(drop)
    privileged = merged.get("privileged") is True
    if privileged:
        caps = set(agent)
    elif not root:
        if add:
            out.add("capabilities.add")
        if drop and not locked:
            out.add("capabilities.drop")
    elif any(each != "ALL" and each not in agent for each in add):
        out.add("capabilities.add")
    if not root:
        caps = set()
        if privileged:
            out.add("privileged")
    read_only = merged.get("readOnlyRootFilesystem") is True
    if read_only and "SYS_ADMIN" not in agent:
        out.add("readOnlyRootFilesystem")
    filtered = merged.get("seccompProfile") == {"type": "RuntimeDefault"} and not privileged
    if filtered and not locked and "SYS_ADMIN" not in agent:
        out.add("seccompProfile")
    violation = None
    if merged.get("runAsNonRoot") is True and uid == 0:
        violation = "runAsUser" if merged.get("runAsUser") == 0 else "image"
    credentials = {
        "uid": uid,
        "gid": gid,
        "groups": tuple(sorted(groups)) if root else rights.groups,
        "switch": root,
        "capabilities": caps & agent,
        "no_new_privs": locked,
        "read_only_root": read_only and "readOnlyRootFilesystem" not in out,
        "seccomp": filtered and "seccompProfile" not in out,
    }
    return credentials, out, violation


@given(_containers, _pods, _rights)
def test_credentials_equal_the_naive_rules(container: Tree, pod: Tree, rights: AgentRights) -> None:
    found = judge(container, pod, rights)
    credentials, left_out, violation = naive(container, pod, rights)
    own = found.credentials
    shown = {name: getattr(own, name) for name in credentials}
    assert {**shown, "capabilities": set(names_in(own.capabilities))} == credentials
    assert {each.path.split("securityContext.")[1] for each in found.unsupported} == left_out
    assert found.violation == violation
