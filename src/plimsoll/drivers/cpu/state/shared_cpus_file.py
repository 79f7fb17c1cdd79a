"""Record of the always shared CPUs, so that the next process of the driver chooses the same.

Another choice could take a CPU from a device whose CPUs the scheduler has all allocated: the last claim could
then not be prepared. The record is a preference only: without it, or if it is damaged, CPUs are chosen anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.common.checkpoint import RecordFile
from plimsoll.drivers.cpu.findings_log import log_findings
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.errors import StoreError

KIND = "AlwaysSharedCpus"
_MAX_CPUS = 1 << 16


class SharedCpusFile:
    """File in the plugin directory. `content` are the recorded CPUs, None before `load`. Methods block."""

    def __init__(self, settings: CpuSettings) -> None:
        self.content: tuple[int, ...] | None = None
        directory = settings.plugin_dir
        self._file = RecordFile(directory / "shared-cpus.json", KIND, directory / "quarantine", check=_decode)

    def load(self) -> tuple[int, ...]:
        """Return the recorded CPUs in the order of preference; () if there is no usable record."""
        loaded = self._file.load()
        log_findings([loaded.finding] if loaded.finding is not None else [])
        self.content = loaded.value
        return self.content or ()

    def save(self, cpus: Sequence[int]) -> None:
        """Record these CPUs; failures leave `content` as it is."""
        if self.content == (wanted := tuple(cpus)):
            return
        try:
            self._file.save({"cpus": wanted})
        except StoreError:  # tried again; problems of the directory are reported with those of claims
            return
        self.content = wanted


def _decode(body: Any) -> tuple[int, ...]:
    cpus = body.get("cpus") if isinstance(body, dict) else None
    if not isinstance(cpus, list) or len(cpus) > _MAX_CPUS:
        raise ValueError("cpus is not a list")
    if any(type(cpu) is not int or not 0 <= cpu < _MAX_CPUS for cpu in cpus):
        raise ValueError("cpus has something that is not the number of a CPU")
    return tuple(cpus)
