"""`plimsoll convert`: rewrite node-allocatable fields of objects in another wire form.

Reports what the target form cannot express. The conversion rules are in `api.forms`; unknown fields are
preserved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import (
    ClassPolicy,
    Form,
    device_forms,
    read_class,
    read_device,
    read_status,
    status_form,
    write_class,
    write_device,
    write_status,
)
from plimsoll.api.meta import Wire
from plimsoll.api.record import apply_changes
from plimsoll.api.resource import DeviceClass, ResourceSlice
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.node_allocatable import validate_device_forms
from plimsoll.common.yaml import dump_document
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.manifests import ParsedObject


@dataclass(frozen=True, slots=True)
class ConvertedObject:
    """Converted object and the data that its form cannot express."""

    tree: dict[str, Any]
    losses: tuple[str, ...]

    def json(self) -> str:
        """Render as one line of JSON with unprintable characters escaped."""
        text = codec.encode(self.tree).decode()
        return text if text.isprintable() else "".join(map(_visible, text))

    def yaml(self) -> str:
        """Render as a YAML document without the separator line."""
        return dump_document(self.tree).decode()


def _visible(letter: str) -> str:
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]


def convert_all(objects: Iterable[ParsedObject], form: str) -> Iterator[ConvertedObject]:
    """Convert many objects. Errors name the location of the object."""
    for found in objects:
        try:
            yield convert_object(found.tree, Form(form))
        except InputError as error:
            raise InputError(f"{found.where}: {error}") from None


def convert_object(tree: dict[str, Any], form: Form) -> ConvertedObject:
    """Convert one object; return objects without node-allocatable data unchanged."""
    view = codec.view_type(str(tree.get("apiVersion", "")), str(tree.get("kind", "")))
    before = codec.convert(tree, view)
    after, losses = _convert_view(before, form)
    fresh = codec.decode_tree(codec.encode(tree))
    return ConvertedObject(apply_changes(fresh, before, after), losses)


def _convert_view(view: Wire, form: Form) -> tuple[Wire, tuple[str, ...]]:
    if isinstance(view, ResourceSlice):
        if view.spec.devices is None:
            return view, ()
        losses: list[str] = []
        devices = []
        for index, device in enumerate(view.spec.devices):
            if device_forms(device):
                for problem in validate_device_forms(device, FieldPath("spec").child("devices").index(index)):
                    raise InputError(f"cannot be converted, it is inconsistent: {problem}")
                written = write_device(device, read_device(device), form)
                losses += written.losses
                device = written.view
            devices.append(device)
        return replace(view, spec=replace(view.spec, devices=tuple(devices))), tuple(losses)
    if isinstance(view, Pod) and status_form(view.status):
        status = write_status(view.status, read_status(view.status), form)
        return replace(view, status=status.view), status.losses
    if isinstance(view, DeviceClass) and read_class(view.spec) != ClassPolicy():
        return replace(view, spec=write_class(view.spec, read_class(view.spec), form)), ()
    return view, ()
