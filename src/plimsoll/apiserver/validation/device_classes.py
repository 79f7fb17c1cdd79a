"""DeviceClass (section 6 of the API semantics)."""

from __future__ import annotations

from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClassConfiguration, DeviceClassSpec
from plimsoll.apiserver.validation.claim_configuration import CONFIGURATIONS_MAX, check_configuration
from plimsoll.apiserver.validation.device_selectors import check_selectors
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.field_errors import Path, Problems, check_list, invalid
from plimsoll.apiserver.validation.name_formats import is_extended_resource
from plimsoll.apiserver.validation.node_allocatable import check_class_policies

_SPEC = Path("spec")


def check_class_spec(spec: DeviceClassSpec, old: DeviceClassSpec | None, gates: Gates) -> Problems:
    """The spec of a class; selectors and configuration that did not change keep the rules of their time."""
    stored = old is not None and same(old.selectors, spec.selectors)
    yield from check_selectors(spec.selectors, _SPEC.child("selectors"), gates, stored=stored)
    stored_config = old is not None and same(old.config, spec.config)

    def check_config(config: DeviceClassConfiguration, at: Path) -> Problems:
        return check_configuration(config.opaque, at, stored=stored_config)

    yield from check_list(spec.config, CONFIGURATIONS_MAX, check_config, _SPEC.child("config"))
    name = spec.extended_resource_name
    if name is not None and not is_extended_resource(name):
        detail = (
            "must be domain/name outside kubernetes.io, such as example.com/gpu, and not start with requests."
        )
        yield invalid(_SPEC.child("extendedResourceName"), name, detail)
    yield from check_class_policies(spec, _SPEC)
