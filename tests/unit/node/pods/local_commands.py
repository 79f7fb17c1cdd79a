"""Commands of simulated containers, run as local processes of the test user."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from plimsoll.node.pods.command_runner import HostCommandRunner
from plimsoll.node.runtime.exec_spec import credentials_spec
from plimsoll.node.runtime.shims import SOURCE, confinement_path
from plimsoll.node.security.context import SecurityRequest
from plimsoll.node.security.credentials import compute_credentials
from plimsoll.node.security.rights import read_rights


def beside_us(env: Mapping[str, str] | Callable[[str], Mapping[str, str]]) -> HostCommandRunner:
    """Return a command runner with an environment, or with that of a container by ID."""
    own = compute_credentials(SecurityRequest(), read_rights()).credentials

    def find(id: str) -> dict[str, object]:
        return {
            "env": {"PATH": os.environ["PATH"], **(env(id) if callable(env) else env)},
            "cwd": "/",
            "join": [],
            "credentials": credentials_spec(own),
            "own_mounts": False,
        }

    return HostCommandRunner(find, lambda: confinement_path(SOURCE))
