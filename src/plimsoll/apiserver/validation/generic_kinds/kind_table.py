"""Table of the kinds with rules in addition to the generic strategy."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.meta import Object, Wire
from plimsoll.apiserver.registry.schema_view import view_of
from plimsoll.apiserver.validation.generic_kinds.access_rules import ACCESS_RULES
from plimsoll.apiserver.validation.generic_kinds.admission_policy_kinds import ADMISSION_POLICY_RULES
from plimsoll.apiserver.validation.generic_kinds.config_map_and_secret_rules import DATA_RULES
from plimsoll.apiserver.validation.generic_kinds.flow_control_rules import FLOW_CONTROL_RULES
from plimsoll.apiserver.validation.generic_kinds.job_rules import JOB_RULES
from plimsoll.apiserver.validation.generic_kinds.kind_rules import DEFAULT_RULES, KindRules
from plimsoll.apiserver.validation.generic_kinds.limit_range_rules import LIMIT_RANGE_RULES
from plimsoll.apiserver.validation.generic_kinds.policy_rules import POLICY_RULES
from plimsoll.apiserver.validation.generic_kinds.service_rules import SERVICE_RULES
from plimsoll.apiserver.validation.generic_kinds.storage_rules import STORAGE_RULES
from plimsoll.apiserver.validation.generic_kinds.workload_rules import WORKLOAD_RULES

#: Rules by kind; kind names are unique across groups here.
KIND_RULES: Mapping[str, KindRules] = {
    **WORKLOAD_RULES,
    **JOB_RULES,
    **SERVICE_RULES,
    **STORAGE_RULES,
    **DATA_RULES,
    **POLICY_RULES,
    **LIMIT_RANGE_RULES,
    **ACCESS_RULES,
    **ADMISSION_POLICY_RULES,
    **FLOW_CONTROL_RULES,
}


def rules_for_kind(kind: str) -> KindRules:
    return KIND_RULES.get(kind, DEFAULT_RULES)


def view_for_kind(kind: str) -> type[Wire]:
    """Return the view of a kind: all fields if it has rules, else its metadata."""
    package = rules_for_kind(kind).package
    return view_of(f"{package}.{kind}") if package else Object
