"""Accounting profiles: Plimsoll's rules, or those of a stock Kubernetes release.

The default profile follows KEP-5517; `AccountingProfile.upstream_1_36()` behaves exactly as kube-scheduler
1.36.4, and `AccountingProfile.upstream_1_37()` as the sources of 1.37.0-rc.1. They differ in:

- DIFF: a device is found by driver, pool and name, on this node, in the newest generation of its pool; 1.36
  takes the first of that pool and name, of any driver
  (test_a_device_is_found_by_driver_pool_and_name, test_the_newest_generation_on_the_node_counts).
- DIFF: a capacityKey of a device that is not shared charges the device's full capacity; 1.36 ends in an
  error (test_an_exclusive_device_charges_its_whole_capacity).
- DIFF: a claim that no container refers to is charged once; 1.36 rejects the pod
  (test_an_unreferenced_claim_is_charged_once).
- DIFF: a claim that was allocated before the pod was created is charged; 1.36 ignores it
  (test_a_claim_allocated_before_is_charged).
- DIFF: a container counts once for a claim, regardless of the number of references; 1.36 lists it every time
  (test_a_container_is_listed_once).
- DIFF: accounting policies are applied; upstream has none (test_policies_need_the_default_profile).
- DIFF: charges of an assumed pod are kept if the server drops them from its status; upstream loses them
  (test_charges_survive_a_server_that_drops_them).
- DIFF: a claim that charges its node is in use if another pod on the node has it, or if it is reserved for
  another pod, which may not be bound yet or may just be deleted; 1.36 checks the node only, 1.37 the
  reservation (test_a_claim_reserved_for_another_pod_is_refused).
- DIFF: in clusters without the fields, charges are defined in annotations of classes and recorded in
  annotations of pods; upstream has neither (test_a_class_charges_by_its_annotation,
  test_charges_in_an_annotation_are_counted).
- DIFF: a device that is allocated with admin access charges nothing: it is observed, not used; upstream
  charges it like any other (test_admin_access_charges_nothing).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates


class SharingCheck(Enum):
    """Method of detecting that another pod uses a claim."""

    BY_CONSUMERS = "1.36"  #: another pod on this node has it in its status
    BY_RESERVATION = "1.37"  #: the claim has a mapped device and is reserved for another pod
    BY_EITHER = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingProfile:
    """A set of accounting rules."""

    name: str = "default"
    form: Form = Form.V1_36  #: rules for resized pods, and the form that statuses are written in
    exact_devices: bool = True
    whole_capacity: bool = True
    charge_unreferenced: bool = True
    charge_preallocated: bool = True
    distinct_containers: bool = True
    policies: bool = True
    keep_assumed_charges: bool = True
    charge_admin_access: bool = False  #: charge devices that are allocated with admin access
    annotations: bool = True  #: read annotations of classes and pods, for clusters without the fields
    sharing: SharingCheck = SharingCheck.BY_EITHER
    placeholders: bool = False  #: placeholder pods request the charges, on servers that drop the fields
    charge_shared_once: bool = False  #: count a claim of several pods once, even if it must not be shared
    share_per_claim: bool = False  #: pods may share AddPerClaim claims; the node is charged once
    budget_limits: bool = False  #: pod-level limits must cover claims too, as in 1.37

    @staticmethod
    def default() -> AccountingProfile:
        return _DEFAULT

    @staticmethod
    def for_gates(gates: Gates) -> AccountingProfile:
        """Return Plimsoll's rules as the feature gates select them."""
        return _SHARING if gates.enabled("SharedClaimCharges") else _DEFAULT

    @staticmethod
    def upstream_1_36() -> AccountingProfile:
        """Return the rules of kube-scheduler 1.36.4."""
        return _UPSTREAM_1_36

    @staticmethod
    def upstream_1_37() -> AccountingProfile:
        """Return the rules of kube-scheduler 1.37.0-rc.1."""
        return _UPSTREAM_1_37

    @staticmethod
    def named(name: str) -> AccountingProfile | None:
        """Return a profile by name (`default`, `upstream-1.36`, `upstream-1.37`), or None."""
        return PROFILES.get(name)


_DEFAULT = AccountingProfile()
_SHARING = AccountingProfile(share_per_claim=True)
_UPSTREAM_1_36 = AccountingProfile(
    name="upstream-1.36",
    exact_devices=False,
    whole_capacity=False,
    charge_unreferenced=False,
    charge_preallocated=False,
    distinct_containers=False,
    policies=False,
    keep_assumed_charges=False,
    charge_admin_access=True,
    annotations=False,
    sharing=SharingCheck.BY_CONSUMERS,
)
_UPSTREAM_1_37 = AccountingProfile(
    name="upstream-1.37",
    form=Form.V1_37,
    whole_capacity=False,
    distinct_containers=False,
    policies=False,
    keep_assumed_charges=False,
    charge_admin_access=True,
    annotations=False,
    sharing=SharingCheck.BY_RESERVATION,
    budget_limits=True,
)

PROFILES = {profile.name: profile for profile in (_DEFAULT, _UPSTREAM_1_36, _UPSTREAM_1_37)}
