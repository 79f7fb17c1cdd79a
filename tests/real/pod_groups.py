"""Servers with PodGroups."""

from __future__ import annotations

from tests.real.programs import minor_version

NS = "default"


GATES = ["GenericWorkload", "TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims"]


GATES_1_36 = ["GangScheduling", "WorkloadAwarePreemption"]


def options_of_groups() -> tuple[str, list[str]]:
    """Return the gates and options with which the server serves PodGroups."""
    later = minor_version() > 36
    gates = ",".join(f"{name}=true" for name in (GATES if later else GATES + GATES_1_36))
    return gates, [f"--runtime-config=scheduling.k8s.io/{'v1beta1' if later else 'v1alpha2'}=true"]
