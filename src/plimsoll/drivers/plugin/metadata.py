"""Device metadata files for containers (KEP-5304; docs/spec/node-protocols.md, "CDI").

`MetadataFiles` keeps one file per request of a claim in the plugin directory and one CDI file that mounts it
into containers. Files are replaced atomically and removed with their claim; removing absent files is not an
error. They need not survive a crash of the machine, after which claims are prepared again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.common.atomic_file import replace_file
from plimsoll.drivers.plugin.driver import ClaimError
from plimsoll.errors import DecodeError
from plimsoll.protocols.cdi import CdiFault, CdiSpec, CdiSpecDevice, Edits, Mount, needed_version, write_spec
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

API_VERSION = "metadata.resource.k8s.io/v1beta1"
DIRECTORY = "dra-device-metadata"
CONTAINER_DIR = "/var/run/kubernetes.io/dra-device-attributes"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_FILE = "metadata.json"


def build_metadata(
    driver: str,
    ref: ClaimRef,
    request: str,
    devices: Sequence[PreparedDevice],
    *,
    pod_claim: str = "",
    generation: int = 1,
) -> dict[str, Any]:
    """Build the metadata of the devices of one request. Pure."""
    tree: dict[str, Any] = {
        "kind": "DeviceMetadata",
        "apiVersion": API_VERSION,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "uid": ref.uid,
            "generation": generation,
        },
    }
    if pod_claim:
        tree["podClaimName"] = pod_claim
    entries = []
    for device in devices:
        entry: dict[str, Any] = {"driver": driver, "pool": device.pool, "name": device.device}
        for member in ("attributes", "networkData"):
            if (value := (device.metadata or {}).get(member)) is not None and value != {}:
                entry[member] = value
        entries.append(entry)
    tree["requests"] = [{"name": request, "devices": entries}]
    return tree


def container_path(driver: str, ref: ClaimRef, request: str, pod_claim: str = "") -> str:
    """Return the path of a request's metadata file inside containers."""
    kind, name = ("resourceclaimtemplates", pod_claim) if pod_claim else ("resourceclaims", ref.name)
    return f"{CONTAINER_DIR}/{kind}/{name}/{request}/{driver}-metadata.json"


class MetadataFiles:
    """Metadata files of one driver. Methods block on disk I/O only."""

    def __init__(self, driver: str, plugin_dir: Path, cdi: Path) -> None:
        self._driver = driver
        self._directory = plugin_dir / DIRECTORY
        self._cdi = cdi
        #: CDI files of the claims by their directory, with the identity that it had when they were read.
        self._known: dict[str, tuple[tuple[int, int], set[str]]] = {}

    def write(
        self, ref: ClaimRef, devices: Sequence[PreparedDevice], pod_claim: str = ""
    ) -> dict[str, str] | ClaimError:
        """Write the files of a claim; return the CDI device of each request, by its name without subrequest.

        Nothing is written for claims without metadata.
        """
        if all(device.metadata is None for device in devices):
            return {}
        by_request: dict[str, list[PreparedDevice]] = {}
        for device in devices:
            for request in device.requests:
                by_request.setdefault(request, []).append(device)
        names: dict[str, str] = {}
        for request, group in by_request.items():
            short = request.partition("/")[0]
            tree = build_metadata(self._driver, ref, request, group, pod_claim=pod_claim)
            if (refusal := self._write_file(self._path(ref, short), tree)) is not None:
                return refusal
            if (error := self._mount(ref, short, pod_claim)) is not None:
                return ClaimError(f'write CDI spec for request "{request}": {error}', "CdiNotWritten")
            names[short] = f"{self._driver}/metadata={ref.uid}_{short}"
        return names

    def update(self, ref: ClaimRef, request: str, devices: Sequence[PreparedDevice]) -> ClaimError | None:
        """Replace the metadata of the devices of a prepared request."""
        path = self._path(ref, request.partition("/")[0])
        try:
            before = codec.decode_tree(path.read_bytes())
            generation = int(before["metadata"]["generation"]) + 1
            pod_claim = str(before.get("podClaimName", ""))
        except FileNotFoundError:
            return ClaimError(f'request "{request}" not found in prepared claim {ref}', "NotPrepared")
        except (OSError, DecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
            return ClaimError(f"decode existing metadata: {error}", "BadMetadata")
        tree = build_metadata(self._driver, ref, request, devices, pod_claim=pod_claim, generation=generation)
        return self._write_file(path, tree)

    def restore(self, uids: Container[str]) -> list[CdiFault]:
        """Write missing CDI files of these claims; return the errors.

        Metadata files are read again only if their directory has changed or the CDI file is missing.
        """
        errors: list[CdiFault] = []
        present = _list_names(self._cdi)
        known, self._known = self._known, {}
        for name in _list_names(self._directory):
            claim = self._directory / name
            identity, files = known.get(name) or ((0, 0), set())
            if identity != (current := _identify(claim)) or not files <= present:
                files = self._restore_claim(claim, uids, present, errors)
            if files:
                self._known[name] = current, files
        return errors

    def _restore_claim(
        self, claim: Path, uids: Container[str], present: set[str], errors: list[CdiFault]
    ) -> set[str]:
        """Write missing CDI files of the claim in a directory; return the names of all.

        Returns nothing if some are still missing, so that they are tried again.
        """
        files: set[str] = set()
        is_complete = True
        for path in claim.glob(f"*/{_FILE}"):
            try:
                tree = codec.decode_tree(path.read_bytes())
                metadata, request = tree["metadata"], path.parent.name
                ref = ClaimRef(str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"]))
                pod_claim = str(tree.get("podClaimName", ""))
            except (OSError, DecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
                errors.append(CdiFault("unreadable", str(path), f"decode existing metadata: {error}"))
                is_complete = False
                continue
            files.add(name := self._cdi_name(ref, request))
            if name in present:
                continue
            if ref.uid not in uids:
                is_complete = False
            elif (failed := self._mount(ref, request, pod_claim)) is not None:
                errors.append(failed)
                is_complete = False
        return files if is_complete else set()

    def list_claims(self) -> dict[str, ClaimRef]:
        """Return the claims that have metadata files, by UID."""
        found = {}
        for path in self._directory.glob(f"*/*/{_FILE}"):
            with suppress(OSError, DecodeError, LookupError, TypeError):  # a damaged file names no claim
                metadata = codec.decode_tree(path.read_bytes())["metadata"]
                ref = ClaimRef(str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"]))
                found[ref.uid] = ref
        return found

    def remove(self, ref: ClaimRef) -> ClaimError | None:
        """Remove all files of a claim."""
        try:
            shutil.rmtree(self._claim(ref))
        except FileNotFoundError:
            pass
        except OSError as error:
            return ClaimError(f"clean up device metadata: {error}", "MetadataNotRemoved")
        try:
            part = f"{self._driver}_metadata_{ref.uid}_"
            for name in _list_names(self._cdi):
                if part in name:  # also in the name of a temporary file
                    (self._cdi / name).unlink(missing_ok=True)
        except OSError as error:
            return ClaimError(f"clean up device metadata: {error}", "MetadataNotRemoved")
        return None

    def _mount(self, ref: ClaimRef, request: str, pod_claim: str) -> CdiFault | None:
        """Write the CDI file that mounts the metadata file of a request."""
        mount = Mount(
            host_path=str(self._path(ref, request)),
            container_path=container_path(self._driver, ref, request, pod_claim),
            options=("ro", "bind"),
        )
        draft = CdiSpec(
            version="0.3.0",
            kind=f"{self._driver}/metadata",
            devices=(CdiSpecDevice(name=f"{ref.uid}_{request}", edits=Edits(mounts=(mount,))),),
        )
        spec = msgspec.structs.replace(draft, version=needed_version(draft))
        written = write_spec(self._cdi, self._cdi_name(ref, request), spec)
        return written if isinstance(written, CdiFault) else None

    def _cdi_name(self, ref: ClaimRef, request: str) -> str:
        return f"{self._driver}_metadata_{ref.uid}_{request}.json"

    def _claim(self, ref: ClaimRef) -> Path:
        return self._directory / f"{ref.namespace}_{ref.name}"

    def _path(self, ref: ClaimRef, request: str) -> Path:
        return self._claim(ref) / request / _FILE

    def _write_file(self, path: Path, tree: dict[str, Any]) -> ClaimError | None:
        try:
            data = msgspec.json.format(codec.encode(tree), indent=2) + b"\n"
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(path, data, mode=0o644, durable=False)
        except (OSError, TypeError, ValueError, NotImplementedError, RecursionError) as error:
            return ClaimError(f"write metadata file: {error}", "MetadataNotWritten")
        return None


def _list_names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except OSError:
        return set()


def _identify(directory: Path) -> tuple[int, int]:
    """Return what changes if files are created or removed in a directory; (0, 0) if there is none."""
    try:
        stat = os.stat(directory)
    except OSError:
        return 0, 0
    return stat.st_ino, stat.st_mtime_ns
