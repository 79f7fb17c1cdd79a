"""Validation of DeviceClass (docs/spec/api.md, "ResourceClaim, template, class")."""

from __future__ import annotations

from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClassConfiguration, DeviceClassSpec
from plimsoll.apiserver.validation.claim_configuration import CONFIGURATIONS_MAX, validate_configuration
from plimsoll.apiserver.validation.device_selectors import validate_selectors
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, validate_list
from plimsoll.apiserver.validation.name_formats import is_extended_resource
from plimsoll.apiserver.validation.node_allocatable import validate_class_policies

_SPEC = FieldPath("spec")


def validate_class_spec(spec: DeviceClassSpec, old: DeviceClassSpec | None, gates: Gates) -> FieldErrors:
    """Validate the spec of a class; unchanged selectors and configuration keep the limits they were
    created under.
    """
    stored = old is not None and semantic_equal(old.selectors, spec.selectors)
    yield from validate_selectors(spec.selectors, _SPEC.child("selectors"), gates, stored=stored)
    stored_config = old is not None and semantic_equal(old.config, spec.config)

    def validate_config(config: DeviceClassConfiguration, at: FieldPath) -> FieldErrors:
        return validate_configuration(config.opaque, at, stored=stored_config)

    yield from validate_list(spec.config, CONFIGURATIONS_MAX, validate_config, _SPEC.child("config"))
    name = spec.extended_resource_name
    if name is not None and not is_extended_resource(name):
        detail = (
            "must be domain/name outside kubernetes.io, such as example.com/gpu, and not start with requests."
        )
        yield invalid(_SPEC.child("extendedResourceName"), name, detail)
    yield from validate_class_policies(spec, _SPEC)
