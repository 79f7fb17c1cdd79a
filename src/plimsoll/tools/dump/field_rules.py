"""Rules of anonymization: how each text field of the objects is replaced.

Fields without a rule are replaced as names, so that a new field cannot leak. `DROPPED` fields are left out:
no answer depends on them, and they hold free text, addresses or the configuration of workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class FieldRule(Enum):
    """Treatment of a text field, or of the texts of a list or mapping."""

    NAME = "name"
    KEEP = "keep"  #: values of the API, times, versions
    DROP = "drop"
    UID = "uid"
    DOMAIN = "domain"  #: names of drivers
    QUALIFIED = "qualified"  #: DOMAIN/NAME of attributes, capacities, resources and conditions
    LABEL_KEY = "label key"
    LABELS = "labels"  #: mapping of label keys to values
    AMOUNTS = "amounts"  #: mapping from names of resources, capacities or attributes
    POLICIES = "policies"  #: mapping from names of resources to values of the API
    POD_NAMES = "pod names"  #: mapping from names of pods
    CEL = "CEL"
    VOLUMES = "volumes"
    IMAGE = "image"
    CONTAINER_STATE = "container state"
    DEVICE_DATA = "device data"
    ANNOTATIONS = "annotations"


def _rules(rule: FieldRule, fields: str) -> dict[str, FieldRule]:
    return dict.fromkeys(fields.split(), rule)


#: Field, or Type.field where fields of the same name differ.
RULES: Mapping[str, FieldRule] = {
    **_rules(
        FieldRule.KEEP,
        """
        access_modes accounting_policy action allocation_mode allocation_timestamp api_group
        api_version creation_timestamp declared_features deletion_timestamp disruption_mode
        effect image_pull_policy kind last_heartbeat_time last_probe_time last_transition_time
        node_affinity_policy node_taints_policy operator phase preemption_policy protocol
        qos_class reason request_policy_name resource resource_version restart_policy scope_name
        scopes skip_node_operations source start_time status stop_signal
        termination_message_policy time_added unhealthy_pod_eviction_policy version_value
        version_values volume_binding_mode volume_mode when_unsatisfiable NodeAddress.type
        LimitRangeItem.type
        """,
    ),
    **_rules(
        FieldRule.DROP,
        """
        address args command config container_id data_source data_source_ref dns_config
        dns_policy env env_from field_path hardware_address host host_aliases host_ip image_id
        interface_name ips lifecycle liveness_probe message network_data node_id node_info
        opaque path pod_ip provider_id readiness_probe security_context startup_probe
        volume_handle volume_mounts volume_devices working_dir names aws_elastic_block_store
        azure_disk azure_file cinder gce_persistent_disk portworx_volume vsphere_volume
        ContainerPort.name
        """,
    ),
    **_rules(FieldRule.UID, "uid share_id"),
    **_rules(FieldRule.DOMAIN, "driver attacher provisioner CSINodeDriver.name CSIDriver.name"),
    **_rules(
        FieldRule.QUALIFIED,
        """
        capacity_key distinct_attribute extended_resource_name match_attribute partition_type_attribute
        resource_name DeviceDerivedAttribute.name MappedQuantity.name OverheadQuantity.name
        QuantitySource.capacity binding_conditions binding_failure_conditions condition_type finalizers
        Condition.type
        """,
    ),
    **_rules(
        FieldRule.LABEL_KEY,
        """
        key match_label_keys mismatch_label_keys topology_key topology_keys PodSchedulingGate.name
        """,
    ),
    **_rules(FieldRule.LABELS, "labels match_labels PodSpec.node_selector LabelMapSpec.selector"),
    **_rules(
        FieldRule.AMOUNTS,
        """
        allocatable allocated_resources attributes capacity consumed_capacity counters default default_request
        drawn hard limits max max_limit_request_ratio min native_resource_mappings
        node_allocatable_resource_mappings node_allocatable_resources overhead request_policies used
        CapacityRequirements.requests ResourceRequirements.requests NodeAllocatableClaimStatus.resources
        """,
    ),
    **_rules(
        FieldRule.POLICIES,
        """
        accounting_policies native_resource_accounting_policies
        node_allocatable_resource_accounting_policies
        """,
    ),
    "image": FieldRule.IMAGE,
    "disrupted_pods": FieldRule.POD_NAMES,
    "expression": FieldRule.CEL,
    "volumes": FieldRule.VOLUMES,
    "state": FieldRule.CONTAINER_STATE,
    "last_state": FieldRule.CONTAINER_STATE,
    "data": FieldRule.DEVICE_DATA,
    "annotations": FieldRule.ANNOTATIONS,
}
