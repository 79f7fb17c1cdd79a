"""Stages file: how long the containers of simulated pods run, and how they exit.

   stages:
   - matchLabels: {app: batch}   # pods with these labels; default: all
     namespace: jobs             # default: all
     container: main             # default: all regular containers
     runSeconds: 5
     exitCode: 1                 # default: 0

The first stage that matches a container counts; annotations of the pod come before it. Every error is a
ConfigError that names the file and the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, field

from plimsoll.api.config import Config, convert_config
from plimsoll.common.config_file import Seconds, read_config, read_document
from plimsoll.ledger.containers import ContainerRole


class Stage(Config, frozen=True, kw_only=True):
    """Run time and exit code of the containers that match."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    container: str = ""
    run_seconds: Seconds
    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0

    def matches(self, namespace: str, labels: Mapping[str, str], container: str, role: ContainerRole) -> bool:
        """Return whether the stage is for a container of a pod."""
        if self.container != container and (self.container or role is not ContainerRole.REGULAR):
            return False
        if self.namespace not in ("", namespace):
            return False
        return self.match_labels.items() <= labels.items()


class _StagesFile(Config, frozen=True):
    stages: tuple[Stage, ...] = ()


def read_stages_file(path: Path) -> tuple[Stage, ...]:
    """Read the stages of a file."""
    return parse_stages(read_document(path, "stages"), str(path))


def parse_stages(tree: Any, where: str = "stages") -> tuple[Stage, ...]:
    """Parse the stages of a tree."""
    file: _StagesFile = read_config(tree, lambda given: convert_config(given, _StagesFile), where)
    return file.stages


def find_stage(
    stages: Sequence[Stage], namespace: str, labels: Mapping[str, str], container: str, role: ContainerRole
) -> Stage | None:
    """Return the first stage that matches a container."""
    return next((stage for stage in stages if stage.matches(namespace, labels, container, role)), None)
