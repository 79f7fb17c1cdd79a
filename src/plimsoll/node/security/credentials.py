"""Credentials of a container: a function of its security context and of the agent's rights. Pure.

Users, groups and capabilities follow the kubelet and containerd: the container's value takes precedence over
the pod's; `add` and `drop` change containerd's default set of capabilities, `drop` last; `privileged` keeps
everything the agent has, whatever else the context specifies about capabilities and seccomp; a non-root user
gets the capabilities as a bounding set only. Every field that cannot be applied is in the result with its
path, the reason and the fix.

DIFF: no image specifies a user, and no /etc/group is read: without runAsUser and runAsGroup a process has the
agent's own user and group, and the policies Merge and Strict have the same effect
(test_without_a_context_the_user_is_the_agents).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from plimsoll.node.security.capabilities import ALL, DEFAULT, SWITCH_USER, SYS_ADMIN, bit_of, names_in
from plimsoll.node.security.context import FieldValue, SecurityRequest, effective_fields, unknown_fields
from plimsoll.node.security.rights import AgentRights
from plimsoll.node.security.seccomp import MACHINES

#: First kernel that can make a tree of mounts read-only at once (mount_setattr).
READ_ONLY_RELEASE = (5, 12)
_ID_MAX = 2**31 - 1
_REMOVE = "remove the field, or run the pod on a node with a container runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCredentials:
    """Credentials of a container's first process, and of every command that runs in it later."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    #: Whether user, groups and the bounding set are set; if not, they are the agent's own.
    switch: bool = True
    #: The bounding set; for root also the permitted and effective sets.
    capabilities: int = 0
    no_new_privs: bool = False
    read_only_root: bool = False
    seccomp: bool = False  #: the RuntimeDefault profile


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """Field that cannot be applied: its path in the pod, the reason, and the fix."""

    path: str
    why: str
    fix: str = _REMOVE


class RootViolation(StrEnum):
    """Reason why a container with runAsNonRoot would run as root."""

    RUN_AS_USER = "runAsUser"
    IMAGE = "image"


@dataclass(frozen=True, slots=True)
class CredentialDecision:
    """Applicable credentials, fields that cannot be applied, and a violation of runAsNonRoot."""

    credentials: ProcessCredentials
    unsupported: tuple[UnsupportedField, ...] = ()
    violation: RootViolation | None = None


def compute_credentials(request: SecurityRequest, rights: AgentRights) -> CredentialDecision:
    """Compute the credentials of a container from what its pod requests."""
    builder = _CredentialBuilder(effective_fields(request), rights)
    for unknown in unknown_fields(request):
        builder.mark_unsupported(unknown, "the field is not known to this version")
    if request.host_users is False:
        field = FieldValue(False, "spec.hostUsers")
        builder.mark_unsupported(field, "containers are processes in the user namespace of the node")
    return builder.build()


@dataclass(slots=True)
class _CredentialBuilder:
    fields: Mapping[str, FieldValue]
    rights: AgentRights
    unsupported: list[UnsupportedField] = field(default_factory=list)

    def build(self) -> CredentialDecision:
        switch = self.rights.can_switch_user
        uid, gid = self._id("runAsUser", self.rights.uid), self._id("runAsGroup", self.rights.gid)
        groups = self._groups(gid)
        no_new_privs = self._flag("allowPrivilegeEscalation") is False
        privileged = self._flag("privileged") is True
        if privileged and not switch:
            self._mark_missing_rights("privileged", "cannot give capabilities away")
        credentials = ProcessCredentials(
            uid=uid,
            gid=gid,
            groups=groups,
            switch=switch,
            capabilities=self._capabilities(privileged, no_new_privs),
            no_new_privs=no_new_privs,
            read_only_root=self._read_only_root(),
            seccomp=self._seccomp(privileged, no_new_privs),
        )
        violation = self._violation(uid)
        self._mark_unavailable()
        return CredentialDecision(credentials, tuple(self.unsupported), violation)

    def _violation(self, uid: int) -> RootViolation | None:
        if self._flag("runAsNonRoot") is not True or uid != 0:
            return None
        named = self.fields.get("runAsUser")
        return RootViolation.RUN_AS_USER if named is not None and named.value == 0 else RootViolation.IMAGE

    # -- users and groups

    def _id(self, name: str, own: int) -> int:
        given = self.fields.get(name)
        if given is None:
            return own
        value = given.value
        if not _is_id(value):
            self.mark_unsupported(given, f"{value!r} is not a valid ID", f"use a number from 0 to {_ID_MAX}")
            return own
        if value != own and not self.rights.can_switch_user:
            self._mark_missing_rights(name, f"cannot take on ID {value}; its own is {own}")
            return own
        return int(value)

    def _groups(self, gid: int) -> tuple[int, ...]:
        """Return the supplementary groups: the primary group, those listed, and fsGroup, as in containerd."""
        rights, wanted = self.rights, {gid}
        for name in ("supplementalGroups", "fsGroup"):
            given = self.fields.get(name)
            if given is None:
                continue
            values = given.value if name == "supplementalGroups" else [given.value]
            if not isinstance(values, list) or not all(map(_is_id, values)):
                fix = f"use numbers from 0 to {_ID_MAX}"
                self.mark_unsupported(given, f"{given.value!r} is not a list of group IDs", fix)
                continue
            missing = sorted({*values} - {rights.gid, *rights.groups})
            if missing and not rights.can_switch_user:
                self._mark_missing_rights(name, f"cannot join groups {', '.join(map(str, missing))}")
                continue
            wanted.update(values)
        policy = self.fields.get("supplementalGroupsPolicy")
        if policy is not None and policy.value not in ("Merge", "Strict"):
            self.mark_unsupported(policy, f"{policy.value!r} is not known", "use Merge or Strict")
        extra = sorted({*rights.groups} - wanted)
        if policy is not None and policy.value == "Strict" and extra and not rights.can_switch_user:
            text = f"cannot leave its own groups {', '.join(map(str, extra))}"
            self._mark_missing_rights("supplementalGroupsPolicy", text)
        return tuple(sorted(wanted)) if rights.can_switch_user else rights.groups

    # -- capabilities

    def _capabilities(self, privileged: bool, no_new_privs: bool) -> int:
        every = self.rights.capabilities
        given = self.fields.get("capabilities")
        add = self._capability_names(given, "add")
        drop = self._capability_names(given, "drop")
        if privileged:
            return every if self.rights.can_switch_user else 0
        if not self.rights.can_switch_user:
            if add and given is not None:
                self._mark_missing_rights("capabilities", "cannot give capabilities away", ".add")
            if drop and given is not None and not no_new_privs:
                # Without its own bounding set a process can gain capabilities through setuid programs.
                text = "cannot reduce the bounding set"
                fix = "also set allowPrivilegeEscalation: false, or run the agent as root"
                self._mark_missing_rights("capabilities", text, ".drop", fix)
            return 0
        mask = DEFAULT & every
        if ALL in add:
            mask = every
        if ALL in drop:
            mask = 0
        for name in add:
            mask |= bit_of(name)
            if given is not None and bit_of(name) & ~every:
                value = FieldValue(name, f"{given.path}.add")
                self.mark_unsupported(
                    value, f"the agent itself does not have {name}", "grant it to the agent"
                )
        for name in drop:
            mask &= ~bit_of(name)
        return mask & every

    def _capability_names(self, given: FieldValue | None, name: str) -> tuple[str, ...]:
        tree = given.value if given is not None else {}
        names = tree.get(name) if isinstance(tree, Mapping) else tree
        if given is None or names is None:
            return ()
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            self.mark_unsupported(given, f"{names!r} is not a list of capabilities")
            return ()
        unknown = [each for each in names if not bit_of(each) and each.upper() != ALL]
        if unknown:
            value = FieldValue(unknown, f"{given.path}.{name}")
            fix = "use names without CAP_, such as NET_ADMIN"
            self.mark_unsupported(value, f"no such capability: {', '.join(unknown)}", fix)
        return tuple(each.upper() for each in names if each not in unknown)

    # -- other fields

    def _read_only_root(self) -> bool:
        wanted = self._flag("readOnlyRootFilesystem") is True
        if wanted and not self.rights.capabilities & SYS_ADMIN:
            self._mark_missing_rights("readOnlyRootFilesystem", "cannot make mounts", needs=SYS_ADMIN)
            return False
        if wanted and self.rights.release < READ_ONLY_RELEASE:
            text = "the kernel cannot make a tree of mounts read-only; that takes Linux 5.12 or newer"
            self.mark_unsupported(self.fields["readOnlyRootFilesystem"], text)
            return False
        return wanted

    def _seccomp(self, privileged: bool, no_new_privs: bool) -> bool:
        given = self.fields.get("seccompProfile")
        kind = _profile_type(given)
        if given is None or kind == "Unconfined":
            return False
        if kind != "RuntimeDefault":
            self.mark_unsupported(given, f"profiles of type {kind!r} cannot be loaded", "use RuntimeDefault")
            return False
        if privileged:
            return False
        if self.rights.machine not in MACHINES:
            text = f"there is no RuntimeDefault profile for {self.rights.machine}"
            self.mark_unsupported(
                given, text, "use Unconfined, or run the pod on a node with a container runtime"
            )
            return False
        if not no_new_privs and not self.rights.capabilities & SYS_ADMIN:
            text = "cannot load a filter unless allowPrivilegeEscalation is false"
            fix = "set allowPrivilegeEscalation: false, or run the agent as root"
            self._mark_missing_rights("seccompProfile", text, fix=fix, needs=SYS_ADMIN)
            return False
        return True

    def _mark_unavailable(self) -> None:
        given = self.fields.get("appArmorProfile")
        if given is not None and _profile_type(given) != "Unconfined":
            text = f"AppArmor profiles of type {_profile_type(given)!r} cannot be applied"
            self.mark_unsupported(
                given, text, "use Unconfined, or run the pod on a node with a container runtime"
            )
        for name, text in (
            ("seLinuxOptions", "SELinux labels cannot be applied"),
            ("windowsOptions", "the node runs Linux"),
            ("sysctls", "containers share the kernel parameters of the node"),
        ):
            given = self.fields.get(name)
            if given is not None and given.value not in ({}, []):
                self.mark_unsupported(given, text)
        given = self.fields.get("procMount")
        if given is not None and given.value != "Unmasked":
            self.mark_unsupported(given, "containers see the unmasked /proc of the node")

    # -- helpers

    def _flag(self, name: str) -> bool | None:
        given = self.fields.get(name)
        if given is None or isinstance(given.value, bool):
            return None if given is None else given.value
        if not any(each.path == given.path for each in self.unsupported):
            self.mark_unsupported(given, f"{given.value!r} is neither true nor false", "use true or false")
        return None

    def mark_unsupported(self, given: FieldValue, why: str, fix: str = _REMOVE) -> None:
        self.unsupported.append(UnsupportedField(given.path, why, fix))

    def _mark_missing_rights(
        self, name: str, text: str, below: str = "", fix: str = "", needs: int = SWITCH_USER
    ) -> None:
        missing = names_in(needs & ~self.rights.capabilities)
        lacks = f" without CAP_{', CAP_'.join(missing)}" if missing else ""
        why = f"the agent runs as user {self.rights.uid}{lacks} and {text}"
        path = f"{self.fields[name].path}{below}"
        self.unsupported.append(
            UnsupportedField(path, why, fix or "run the agent as root, or remove the field")
        )


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _ID_MAX


def _profile_type(given: FieldValue | None) -> Any:
    tree = given.value if given is not None else None
    return tree.get("type") if isinstance(tree, Mapping) else tree
