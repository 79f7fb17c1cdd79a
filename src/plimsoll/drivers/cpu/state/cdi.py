"""CDI files of claims: they pass the CPUs to containers, and survive a restart of the driver.

Names and content are the Go driver's (docs/spec/cpu-driver.md, "CDI"), so that either driver can take over a
node from the other. Reading never raises, whatever the directory contains.

Allocations with per-request CPUs have additional devices in the same file, one for each request. Each
contains the CPUs of the full claim under the usual variable name, so that a driver without this feature
accepts it, and those of the request under a name with another prefix: the usual prefix is reserved, and the
rest of the name is parsed as a claim UID.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.atomic_file import sync_directory
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.errors import InputError
from plimsoll.protocols.cdi import (
    CdiFault,
    CdiSpec,
    CdiSpecDevice,
    Edits,
    read_spec,
    remove_spec,
    spec_name,
    write_spec,
)
from plimsoll.protocols.cdi.names import check_device

VENDOR, CLASS = "dra.k8s.io", "cpu"
KIND = f"{VENDOR}/{CLASS}"
VERSION = "0.8.0"
#: NAME_<claim UID> = the CPUs of the claim.
ENV = "DRA_CPUSET"
#: NAME_<claim UID with underscores> = the CPUs of the claim. The name above is not a valid identifier, and
#: many shells do not pass it on; another prefix, because what follows that one is parsed as a claim UID.
SHELL_ENV = "DRA_CLAIM_CPUSET"
#: NAME_<claim UID>_<request> = the CPUs of one request of it.
REQUEST_ENV = "DRA_REQUEST_CPUSET"
#: The always shared CPUs, for containers that may use the shared pool in addition to their own CPUs.
SHARED_ENV = "DRA_SHARED_CPUSET"

_PREFIX = spec_name(VENDOR, CLASS, "claim-")
_SUFFIX = ".json"
#: CPU numbers with more digits are invalid.
_LONG_NUMBER = re.compile(r"[0-9]{5}")
_TEXT_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class CpuClaimCdiFile:
    """Parsed CDI file of a claim. With a fault it is unreliable, and `cpus` are all CPUs it names."""

    uid: str
    cpus: CpuSet
    requests: Mapping[str, CpuSet] = field(default_factory=dict)
    fault: str = ""
    path: str = ""


def device_name(uid: str, request: str = "") -> str:
    """Return the name of the CDI device of a claim, or of one of its requests.

    Neither UIDs nor request names contain underscores.
    """
    return f"claim-{uid}_{request}" if request else f"claim-{uid}"


def cdi_id(uid: str, request: str = "") -> str:
    return f"{KIND}={device_name(uid, request)}"


def file_name(uid: str) -> str:
    return spec_name(VENDOR, CLASS, device_name(uid)) + _SUFFIX


def validate_uid(uid: str) -> str:
    """Return the reason why no file can be written for a claim UID, or ""."""
    return check_device(device_name(uid)) or (
        "" if uid and len(uid) <= 200 else f"not a claim UID: {uid[:80]!r}"
    )


def make_spec(allocation: ClaimAllocation, shared: CpuSet = EMPTY) -> CdiSpec:
    """Build the CDI spec of an allocation; `shared` is included if not empty."""
    uid = allocation.ref.uid
    env = [f"{ENV}_{uid}={allocation.assigned}", f"{shell_name(uid)}={allocation.assigned}"]
    if shared:
        env.append(f"{SHARED_ENV}={shared}")
    devices = [CdiSpecDevice(name=device_name(uid), edits=Edits(env=tuple(env)))]
    if allocation.per_request:
        for request in list_requests(allocation):
            own = f"{REQUEST_ENV}_{uid}_{request}={allocation.get_request_cpus(request)}"
            devices.append(CdiSpecDevice(name=device_name(uid, request), edits=Edits(env=(*env, own))))
    return CdiSpec(version=VERSION, kind=KIND, devices=tuple(devices))


def shell_name(uid: str) -> str:
    """Return the variable with the CPUs of a claim, as a name that every shell passes on.

    DIFF: the Go driver exports only a name with dashes (test_the_cpus_are_in_a_variable_for_shells).
    """
    return f"{SHELL_ENV}_{re.sub('[^A-Za-z0-9]', '_', uid)}"


def list_requests(allocation: ClaimAllocation) -> tuple[str, ...]:
    """Return the requests that have CPUs, by their names in containers."""
    return tuple(
        dict.fromkeys(
            assignment.base for assignment in allocation.assignments if assignment.cpus and assignment.request
        )
    )


def write_file(directory: Path, allocation: ClaimAllocation, shared: CpuSet = EMPTY) -> CdiFault | None:
    written = write_spec(directory, file_name(allocation.ref.uid), make_spec(allocation, shared))
    return written if isinstance(written, CdiFault) else None


def remove_file(directory: Path, uid: str) -> CdiFault | None:
    """Remove a CDI file durably: a file that reappears after a crash would be trusted."""
    fault = remove_spec(directory, file_name(uid))
    if fault is not None and not os.path.lexists(directory / file_name(uid)):
        return None  # no directory, so no file
    if fault is None:
        with contextlib.suppress(OSError):  # no directory, or one that cannot be synced
            sync_directory(directory)
    return fault


def read_files(directory: Path) -> tuple[dict[str, CpuClaimCdiFile], tuple[CdiFault, ...]]:
    """Read the CDI files by claim UID, with faults for files without a claim."""
    files: dict[str, CpuClaimCdiFile] = {}
    faults: list[CdiFault] = []
    try:
        names = sorted(entry.name for entry in os.scandir(directory))
    except FileNotFoundError:
        return {}, ()
    except (OSError, ValueError) as error:
        return {}, (CdiFault("unreadable", str(directory), f"failed to list CDI files: {error}"),)
    for name in names:
        if not _is_ours(name):
            continue
        uid = name[len(_PREFIX) : -len(_SUFFIX)]
        if problem := validate_uid(uid):
            faults.append(CdiFault("invalid", ascii(name), f"belongs to no claim: {problem}"))
            continue
        files[uid] = read_file(directory, uid)
    return files, tuple(faults)


def has_unknown_claims(directory: Path, known: Collection[str]) -> bool:
    """Report whether a file names CPUs for an unknown claim."""
    try:
        names = os.listdir(directory)
    except (OSError, ValueError):
        return False
    start, end = len(_PREFIX), -len(_SUFFIX)
    ours = [name for name in names if name.startswith(_PREFIX) and name[start:end] not in known]
    uids = (name[start:end] for name in ours if _is_ours(name))
    return any(not validate_uid(uid) and read_file(directory, uid).cpus for uid in uids)


def exists(directory: Path, uid: str) -> bool:
    return os.path.lexists(directory / file_name(uid))


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def read_file(directory: Path, uid: str) -> CpuClaimCdiFile:
    path = directory / file_name(uid)
    spec = read_spec(path)
    if isinstance(spec, CdiFault):
        return CpuClaimCdiFile(uid, EMPTY, fault=spec.message, path=str(path))
    return parse_claim_spec(uid, spec, str(path))


def parse_claim_spec(uid: str, spec: CdiSpec, path: str = "") -> CpuClaimCdiFile:
    """Parse the CDI spec of a claim."""
    cpus, faults = _collect_claim_cpus(device for device in spec.devices)
    if spec.kind != KIND:
        return CpuClaimCdiFile(uid, EMPTY, fault=f"it is of kind {spec.kind}, not {KIND}", path=path)
    if stray := sorted(set(cpus) - {uid}):
        faults.append(f"it names another claim: {stray[0]}")
    mine = [device for device in spec.devices if device.name == device_name(uid)]
    if not mine:
        faults.append(f"it has no device {device_name(uid)}")
    elif uid not in _collect_claim_cpus(mine)[0]:
        faults.append(f"its device has no {ENV}_{uid}")
    elif not cpus.get(uid):
        faults.append("it names no CPU")
    return CpuClaimCdiFile(
        uid, union(cpus.values()), _collect_request_cpus(uid, spec), "; ".join(faults), path
    )


def _collect_claim_cpus(devices: Iterable[CdiSpecDevice]) -> tuple[dict[str, CpuSet], list[str]]:
    """Collect the CPUs of claims from the environment of devices, with faults."""
    found: dict[str, CpuSet] = {}
    faults: list[str] = []
    for device in devices:
        for entry in device.edits.env:
            name, _, value = entry.partition("=")
            if not name.startswith(f"{ENV}_"):
                continue
            uid, cpus = name[len(ENV) + 1 :], read_cpus(value)
            if isinstance(cpus, str):
                faults.append(cpus)
                cpus = EMPTY
            elif uid in found and found[uid] != cpus:
                faults.append(f"it contains {found[uid]} and {cpus} for claim {uid}")
            found[uid] = found.get(uid, EMPTY) | cpus
    return found, faults


def _collect_request_cpus(uid: str, spec: CdiSpec) -> dict[str, CpuSet]:
    prefix = f"{REQUEST_ENV}_{uid}_"
    found: dict[str, CpuSet] = {}
    for device in spec.devices:
        for name, value in device.edits.variables.items():
            cpus = read_cpus(value) if name.startswith(prefix) else ""
            if isinstance(cpus, CpuSet):
                found[name.removeprefix(prefix)] = cpus
    return found


def read_cpus(text: str) -> CpuSet | str:
    """Parse a cpuset, or return the reason why it is invalid."""
    if len(text) > _TEXT_MAX or _LONG_NUMBER.search(text):
        return f"not a set of CPUs: {text[:80]!r}"
    try:
        return CpuSet.parse(text)
    except InputError as error:
        return f"not a set of CPUs: {str(error)[:200]}"
