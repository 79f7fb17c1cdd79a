"""Wire forms of node-allocatable data, and their common internal form.

Three generations exist in clusters:

    form   device field                        pod status field
    1.36   nodeAllocatableResourceMappings     nodeAllocatableResourceClaimStatuses[].resources
    1.37   nodeAllocatableResources            nodeAllocatableResourceClaimStatuses[].mapping, .overhead
    draft  nativeResourceMappings              nativeResourceClaimStatus[].resources

Each is read into `DeviceRule`, `ClaimCharge` and `ClassPolicy` and written back; the result of a write lists
what the form cannot express (`losses`), and `write_*` never drops anything silently. Implements KEP-5517 (API
changes, accounting policies) and its earlier draft (docs/spec/keps.md), and docs/spec/accounting.md, "Changes
in 1.37".

Accounting policies have no field in stock 1.36 and 1.37; here they are `accountingPolicy` on a mapping,
`accountingPolicies` and `drawn` next to `resources` in a 1.36 status entry, and `accountingPolicy` and
`drawn` on the items of the other two. Stock API servers drop them; docs/compat.md describes the consequences,
and `annotations.py` the replacement.
"""

from plimsoll.api.forms.annotations import (
    CLASS_KEY,
    POD_KEY,
    AnnotationProblem,
    find_pod_problem,
    format_charges_annotation,
    read_charges_annotation,
    read_class_annotation,
    read_device_class,
    read_pod,
)
from plimsoll.api.forms.classes import read_class, write_class
from plimsoll.api.forms.devices import MAPPING_FIELDS, device_forms, read_device, write_device
from plimsoll.api.forms.internal import (
    POLICIES,
    AccountingPolicy,
    ClaimCharge,
    ClassPolicy,
    DeviceRule,
    Form,
    FormWriteResult,
    ResourceCharge,
)
from plimsoll.api.forms.statuses import read_status, status_form, write_status

__all__ = [
    "CLASS_KEY",
    "MAPPING_FIELDS",
    "POD_KEY",
    "POLICIES",
    "AccountingPolicy",
    "AnnotationProblem",
    "ClaimCharge",
    "ClassPolicy",
    "DeviceRule",
    "Form",
    "FormWriteResult",
    "ResourceCharge",
    "device_forms",
    "find_pod_problem",
    "format_charges_annotation",
    "read_charges_annotation",
    "read_class",
    "read_class_annotation",
    "read_device",
    "read_device_class",
    "read_pod",
    "read_status",
    "status_form",
    "write_class",
    "write_device",
    "write_status",
]
