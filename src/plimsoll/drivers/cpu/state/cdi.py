"""The CDI files of claims: how containers are told which CPUs are theirs, and a witness after a restart.

Owns names and content, which are those of the Go driver (section 7 of the CPU driver's specification), so
that either driver can take over a node from the other. Promises: whatever lies in the folder, reading it
raises nothing.

Holdings with requests kept apart have further devices in the same file, one for each request. Each tells the
CPUs of the whole claim under the usual name, so that a driver that knows nothing of them still believes it,
and those of the request under a name that starts otherwise: the usual beginning is reserved, and what follows
it is taken for the UID of a claim.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.state.holdings import Holding, union
from plimsoll.errors import InputError
from plimsoll.protocols.cdi import (
    CdiFault,
    Device,
    Edits,
    Spec,
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
#: NAME_<claim UID>_<request> = the CPUs of one request of it.
REQUEST_ENV = "DRA_REQUEST_CPUSET"
#: The CPUs that are always shared; for containers that may use shared CPUs beside their own.
SHARED_ENV = "DRA_SHARED_CPUSET"

_PREFIX = spec_name(VENDOR, CLASS, "claim-")
_SUFFIX = ".json"
#: No machine has CPUs with longer numbers; a set that names such is no set.
_LONG_NUMBER = re.compile(r"[0-9]{5}")
_TEXT_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class CdiFile:
    """What a file says about a claim. With a fault it is not to be relied on, and `cpus` is all it names."""

    uid: str
    cpus: CpuSet
    requests: Mapping[str, CpuSet] = field(default_factory=dict)
    fault: str = ""
    path: str = ""


def device_name(uid: str, request: str = "") -> str:
    """The CDI device of a claim, or of one request of it.

    Neither UIDs nor requests have underscores in them.
    """
    return f"claim-{uid}_{request}" if request else f"claim-{uid}"


def cdi_id(uid: str, request: str = "") -> str:
    return f"{KIND}={device_name(uid, request)}"


def file_name(uid: str) -> str:
    return spec_name(VENDOR, CLASS, device_name(uid)) + _SUFFIX


def check_uid(uid: str) -> str:
    """Why no file can be written for a claim, or nothing."""
    return check_device(device_name(uid)) or (
        "" if uid and len(uid) <= 200 else f"no UID of a claim: {uid[:80]!r}"
    )


def make_spec(holding: Holding, shared: CpuSet = EMPTY) -> Spec:
    """The file of a holding; `shared` is told too where there is any."""
    uid = holding.ref.uid
    env = [f"{ENV}_{uid}={holding.granted}"]
    if shared:
        env.append(f"{SHARED_ENV}={shared}")
    devices = [Device(name=device_name(uid), edits=Edits(env=tuple(env)))]
    if holding.apart:
        for request in requests_of(holding):
            own = f"{REQUEST_ENV}_{uid}_{request}={holding.of_request(request)}"
            devices.append(Device(name=device_name(uid, request), edits=Edits(env=(*env, own))))
    return Spec(version=VERSION, kind=KIND, devices=tuple(devices))


def requests_of(holding: Holding) -> tuple[str, ...]:
    """The requests that have CPUs, as containers name them."""
    return tuple(dict.fromkeys(grant.base for grant in holding.grants if grant.cpus and grant.request))


def write_file(folder: Path, holding: Holding, shared: CpuSet = EMPTY) -> CdiFault | None:
    written = write_spec(folder, file_name(holding.ref.uid), make_spec(holding, shared))
    return written if isinstance(written, CdiFault) else None


def remove_file(folder: Path, uid: str) -> CdiFault | None:
    """Take a file away so that it stays away: one that came back after a crash would be believed."""
    fault = remove_spec(folder, file_name(uid))
    if fault is not None and not os.path.lexists(folder / file_name(uid)):
        return None  # no folder, so no file
    if fault is None:
        with contextlib.suppress(OSError):  # no folder, or one that cannot be synced
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    return fault


def read_files(folder: Path) -> tuple[dict[str, CdiFile], tuple[CdiFault, ...]]:
    """The files of claims by UID, and those that belong to no claim or cannot be looked for."""
    files: dict[str, CdiFile] = {}
    faults: list[CdiFault] = []
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except FileNotFoundError:
        return {}, ()
    except (OSError, ValueError) as error:
        return {}, (CdiFault("unreadable", str(folder), f"failed to list CDI files: {error}"),)
    for name in names:
        if not _is_ours(name):
            continue
        uid = name[len(_PREFIX) : -len(_SUFFIX)]
        if problem := check_uid(uid):
            faults.append(CdiFault("invalid", ascii(name), f"belongs to no claim: {problem}"))
            continue
        files[uid] = read_file(folder, uid)
    return files, tuple(faults)


def names_others(folder: Path, known: Collection[str]) -> bool:
    """Whether a file names CPUs for a claim that is not known."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except (OSError, ValueError):
        return False
    uids = (name[len(_PREFIX) : -len(_SUFFIX)] for name in names if _is_ours(name))
    return any(uid not in known and not check_uid(uid) and read_file(folder, uid).cpus for uid in uids)


def is_there(folder: Path, uid: str) -> bool:
    return os.path.lexists(folder / file_name(uid))


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def read_file(folder: Path, uid: str) -> CdiFile:
    path = folder / file_name(uid)
    spec = read_spec(path)
    if isinstance(spec, CdiFault):
        return CdiFile(uid, EMPTY, fault=spec.message, path=str(path))
    return judge(uid, spec, str(path))


def judge(uid: str, spec: Spec, path: str = "") -> CdiFile:
    """What a file says about the claim that its name is of."""
    cpus, faults = _of_claims(device for device in spec.devices)
    if spec.kind != KIND:
        return CdiFile(uid, EMPTY, fault=f"it is of kind {spec.kind}, not {KIND}", path=path)
    if stray := sorted(set(cpus) - {uid}):
        faults.append(f"it names another claim: {stray[0]}")
    mine = [device for device in spec.devices if device.name == device_name(uid)]
    if not mine:
        faults.append(f"it has no device {device_name(uid)}")
    elif uid not in _of_claims(mine)[0]:
        faults.append(f"its device has no {ENV}_{uid}")
    elif not cpus.get(uid):
        faults.append("it names no CPU")
    return CdiFile(uid, union(cpus.values()), _of_requests(uid, spec), "; ".join(faults), path)


def _of_claims(devices: Iterable[Device]) -> tuple[dict[str, CpuSet], list[str]]:
    """The CPUs of the claims that devices name, and what is wrong with them."""
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
                faults.append(f"it says {found[uid]} and {cpus} of claim {uid}")
            found[uid] = found.get(uid, EMPTY) | cpus
    return found, faults


def _of_requests(uid: str, spec: Spec) -> dict[str, CpuSet]:
    prefix = f"{REQUEST_ENV}_{uid}_"
    found: dict[str, CpuSet] = {}
    for device in spec.devices:
        for name, value in device.edits.variables.items():
            cpus = read_cpus(value) if name.startswith(prefix) else ""
            if isinstance(cpus, CpuSet):
                found[name.removeprefix(prefix)] = cpus
    return found


def read_cpus(text: str) -> CpuSet | str:
    """A set of CPUs, or why the text is none."""
    if len(text) > _TEXT_MAX or _LONG_NUMBER.search(text):
        return f"no set of CPUs: {text[:80]!r}"
    try:
        return CpuSet.parse(text)
    except InputError as error:
        return f"no set of CPUs: {str(error)[:200]}"
