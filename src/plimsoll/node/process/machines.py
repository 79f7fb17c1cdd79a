"""Source of the machine description: settings, a file, or this machine.

Detects changes while the agent runs. Guarantees that a file which becomes invalid at run time changes nothing
but a line in the log; that a machine which cannot satisfy the settings (reserved CPUs it does not have) is a
ConfigError at startup; and that readings which differ only by noise are equal.
"""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.errors import ConfigError, InputError
from plimsoll.node.machine.changes import without_noise
from plimsoll.node.machine.file import read_machine_file
from plimsoll.node.machine.machine import Machine, check_cpus, read_machine, with_max_pods
from plimsoll.node.process.settings import NodeSettings


class MachineSource:
    """Machine according to the settings."""

    def __init__(self, settings: NodeSettings, root: Path = Path("/")) -> None:
        self._settings = settings
        self._root = root
        self._stamp: tuple[int, int] | None = None
        self._machine: Machine | None = None

    def read(self) -> Machine:
        """Read the current machine; raise InputError if it cannot be determined."""
        settings = self._settings
        if settings.machine is not None:
            machine = settings.machine
        elif settings.machine_file is not None:
            machine = self._read_file(settings.machine_file)
        else:
            machine = read_machine(self._root, storage=settings.root)
            if self._machine is not None:
                machine = without_noise(self._machine, machine)
            self._machine = machine
        if settings.max_pods is not None:
            machine = with_max_pods(machine, settings.max_pods)
        try:
            check_cpus(settings.reservations.cpus, machine, "reservedCPUs")
        except InputError as error:
            raise ConfigError(str(error)) from None
        return machine

    @property
    def can_change(self) -> bool:
        return self._settings.machine is None

    def _read_file(self, path: Path) -> Machine:
        try:
            found = os.stat(path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
        stamp = (found.st_mtime_ns, found.st_ino)
        if self._machine is None or stamp != self._stamp:
            self._machine = read_machine_file(path)
            self._stamp = stamp
        return self._machine
