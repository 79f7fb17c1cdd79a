"""Prepared devices of a claim, as the kubelet gets them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation
from plimsoll.protocols.dra import PreparedDevice


def list_prepared_devices(
    allocation: ClaimAllocation, attributes: Mapping[str, Mapping[str, object]] | None = None
) -> list[PreparedDevice]:
    """Return the prepared devices of a claim; `attributes` of devices become their metadata."""
    uid = allocation.ref.uid
    devices = []
    for assignment in allocation.assignments:
        name = cdi.cdi_id(uid, assignment.base if allocation.per_request else "")
        metadata = None
        if attributes and assignment.device in attributes:
            metadata = {
                "attributes": _metadata(
                    attributes[assignment.device], assignment.source, len(assignment.cpus)
                )
            }
        devices.append(
            PreparedDevice(
                assignment.pool,
                assignment.device,
                (assignment.base,) if assignment.request else (),
                (name,) if assignment.cpus else (),
                assignment.share_id,
                metadata,
            )
        )
    return devices


def _metadata(attributes: Mapping[str, object], source: AssignmentSource, count: int) -> dict[str, object]:
    """Return device attributes for containers; grouped devices include the number of allocated CPUs."""
    metadata = dict(attributes)
    if source is not AssignmentSource.DEVICE:
        metadata["dra.cpu/allocatedNumCPUs"] = {"int": count}
    return metadata
