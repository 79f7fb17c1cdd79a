"""Roles of kube-controller-manager's controllers (`system:controller:*`), and the bindings of their accounts.

With `--use-service-account-credentials`, each controller uses its own service account in kube-system. The
roles are in `data/controller_roles.txt`: a block per role with the name of the account, and the namespace if
the role applies in one only, followed by one line per rule:

    VERB,... GROUP,... RESOURCE,... [NAME,...]

The group `core` has no name; in place of the groups, `paths` starts a rule for paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from plimsoll.apiserver.auth.rbac_rules import PolicyRule
from plimsoll.apiserver.auth.users import SERVICE_ACCOUNT_PREFIX

_FILE = "data/controller_roles.txt"
_PREFIX = "system:controller:"


class ControllerRole(NamedTuple):
    """Role of a controller; `namespace` is empty if it applies everywhere."""

    account: str
    namespace: str
    rules: tuple[PolicyRule, ...]

    @property
    def name(self) -> str:
        return f"{_PREFIX}{self.account}" + (f":{self.namespace}" if self.namespace else "")

    @property
    def user(self) -> str:
        return f"{SERVICE_ACCOUNT_PREFIX}kube-system:{self.account}"


def _read_roles(text: str) -> Iterator[ControllerRole]:
    for block in text.strip().split("\n\n"):
        head, *lines = (line for line in block.split("\n") if not line.startswith("#"))
        account, _, namespace = head.partition(" ")
        yield ControllerRole(account, namespace, tuple(map(_read_rule, lines)))


def _read_rule(line: str) -> PolicyRule:
    verbs, groups, what, *names = (tuple(word.split(",")) for word in line.split())
    if groups == ("paths",):
        return PolicyRule(verbs, paths=what)
    return PolicyRule(
        verbs, tuple("" if group == "core" else group for group in groups), what, names[0] if names else ()
    )


def _load() -> tuple[ControllerRole, ...]:
    text = files("plimsoll.apiserver.auth").joinpath(_FILE).read_text(encoding="utf-8")
    return tuple(_read_roles(text.partition("\n\n")[2]))


CONTROLLER_ROLES: tuple[ControllerRole, ...] = _load()
