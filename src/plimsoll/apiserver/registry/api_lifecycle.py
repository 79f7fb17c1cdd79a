"""Life cycle of API versions: the releases of Kubernetes that introduce, deprecate and remove them.

Only versions that change in a release from `OLDEST` on, as in Kubernetes 1.36; whatever is not listed was
introduced, or removed, before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from plimsoll.api.kinds import KINDS

Release = tuple[int, int]

#: Release whose API the server implements; the oldest one with a known life cycle, and the newest.
CURRENT: Release = (1, 36)
OLDEST: Release = (1, 30)
NEWEST: Release = (1, 37)

# Version, introduced, deprecated, removed, kinds; `NEW>` before a kind: the version to use instead.
_TABLE = """
admissionregistration.k8s.io/v1alpha1 26 29 32 ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1alpha1 32 35 38 MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1beta1  28 31 34 ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1beta1  34 37 40 v1> MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1       36 -  -  MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
certificates.k8s.io/v1alpha1          26 34 37 ClusterTrustBundle
certificates.k8s.io/v1beta1           33 37 40 ClusterTrustBundle
certificates.k8s.io/v1beta1           35 38 41 PodCertificateRequest
coordination.k8s.io/v1alpha2          32 35 38 LeaseCandidate
coordination.k8s.io/v1beta1           33 36 39 LeaseCandidate
flowcontrol.apiserver.k8s.io/v1beta3  26 29 32 v1> FlowSchema PriorityLevelConfiguration
networking.k8s.io/v1beta1             31 34 37 IPAddress ServiceCIDR
networking.k8s.io/v1                  33 -  -  IPAddress ServiceCIDR
resource.k8s.io/v1alpha3              33 36 39 DeviceTaintRule
resource.k8s.io/v1alpha3              36 39 42 ResourcePoolStatusRequest
resource.k8s.io/v1beta1               32 35 38 DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
resource.k8s.io/v1beta2               33 36 39 DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
resource.k8s.io/v1beta2               36 39 42 DeviceTaintRule
resource.k8s.io/v1                    34 -  -  DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice
scheduling.k8s.io/v1alpha2            36 -  -  PodGroup Workload
storage.k8s.io/v1alpha1               29 32 35 v1> VolumeAttributesClass
storage.k8s.io/v1beta1                31 34 37 v1> VolumeAttributesClass
storage.k8s.io/v1                     34 -  -  VolumeAttributesClass
storagemigration.k8s.io/v1beta1       35 38 41 StorageVersionMigration
"""


class ApiLifecycle(NamedTuple):
    """Releases in which one version of a kind changes; None if that is not planned."""

    introduced: Release
    deprecated: Release | None = None
    removed: Release | None = None
    replacement: str = ""

    def is_served(self, release: Release) -> bool:
        """Return whether a release can serve the version; beta versions may have to be enabled."""
        return self.introduced <= release and (self.removed is None or release < self.removed)


def _parse(table: str) -> Iterator[tuple[tuple[str, str], ApiLifecycle]]:
    for line in table.strip().split("\n"):
        version, introduced, deprecated, removed, *kinds = line.split()
        group = version.rpartition("/")[0]
        replacement = f"{group}/{kinds.pop(0)[:-1]}" if kinds[0].endswith(">") else ""
        for kind in kinds:
            yield (
                (version, kind),
                ApiLifecycle((1, int(introduced)), _release(deprecated), _release(removed), replacement),
            )


def _release(minor: str) -> Release | None:
    return None if minor == "-" else (1, int(minor))


_LIFECYCLES = dict(_parse(_TABLE))
_SERVED = {(f"{kind.group}/{version}".lstrip("/"), kind.kind) for kind in KINDS for version in kind.versions}


def is_served(api_version: str, kind: str, release: Release = CURRENT) -> bool:
    """Return whether a release can serve a version of a kind."""
    found = _LIFECYCLES.get((api_version, kind))
    return (api_version, kind) in _SERVED if found is None else found.is_served(release)


def has_lifecycle(api_version: str, kind: str) -> bool:
    """Return whether a version of a kind is known to Kubernetes, although the server may not serve it."""
    return (api_version, kind) in _LIFECYCLES


def served_versions(kind: str, release: Release = CURRENT) -> tuple[str, ...]:
    """Return the versions of a kind that a release can serve, of all groups, preferred first."""
    known = [
        f"{each.group}/{version}".lstrip("/")
        for each in KINDS
        if each.kind == kind
        for version in each.versions
    ]
    return tuple(version for version in known if is_served(version, kind, release))


@lru_cache(maxsize=1024)
def deprecation_warning(api_version: str, kind: str, release: Release = CURRENT) -> str:
    """Return the warning about a version that is deprecated in a release, or ""."""
    found = _LIFECYCLES.get((api_version, kind))
    if found is None or found.deprecated is None or release < found.deprecated:
        return ""
    text = f"{api_version} {kind} is deprecated in {_show(found.deprecated)}+"
    if found.removed is not None:
        text += f", unavailable in {_show(found.removed)}+"
    return f"{text}; use {found.replacement} {kind}" if found.replacement else text


def _show(release: Release) -> str:
    return f"v{release[0]}.{release[1]}"
