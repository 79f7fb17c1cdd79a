"""Explanation of a claim's CPUs in lines of text. Pure."""

from __future__ import annotations

from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation

_SOURCE_TEXTS = {
    AssignmentSource.ASSIGNED: "chosen by the driver",
    AssignmentSource.CPUSET: "named by the claim",
    AssignmentSource.DEVICE: "the device is the CPU",
    AssignmentSource.ADOPTED: "found in a CDI file",
    AssignmentSource.ADMIN: "administrative access",
}


def explain_allocation(allocation: ClaimAllocation, why: tuple[tuple[str, ...], ...] | None) -> list[str]:
    """Describe the CPUs of a claim; `why` are the steps of the allocator for each assignment, if known."""
    ref = allocation.ref
    lines = [f"claim {ref if ref.name else ref.uid} has CPUs {allocation.assigned}"]
    if allocation.disputed:
        lines.append(f"disputed: {allocation.disputed}; withheld from others: {allocation.cpus}")
    for index, assignment in enumerate(allocation.assignments):
        request = f"request {assignment.request}" if assignment.request else "unknown request"
        share = f", share {assignment.share_id}" if assignment.share_id else ""
        lines.append(
            f"{request} on {assignment.device or 'no device'}{share}: {assignment.cpus or 'no CPUs'}"
        )
        if why is not None:
            lines += [f"  {line}" for line in why[index]]
        else:
            lines.append(
                f"  {_SOURCE_TEXTS[assignment.source]}, from the checkpoint; the steps were not stored"
            )
            if assignment.options is not None:
                chosen = assignment.options
                lines.append(
                    f"  {chosen.algorithm.value}, sorted {chosen.sorting.value}"
                    + (f", groups of {chosen.group_size}" if chosen.group_size > 1 else "")
                    + (", whole cores" if chosen.full_cores else "")
                    + (", aligned by socket" if chosen.align_by_socket else "")
                    + ("" if chosen.align_l3 else ", not aligned to L3 caches")
                )
    return lines
