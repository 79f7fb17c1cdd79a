"""Validation of pod annotations with a meaning: legacy security profiles, tolerations, pod deletion cost."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api import codec
from plimsoll.api.core import Pod, Toleration
from plimsoll.api.meta import Wire
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, forbidden, invalid
from plimsoll.apiserver.validation.file_paths import validate_local_descending_path
from plimsoll.apiserver.validation.pod.placement import PlacementOptions, validate_tolerations
from plimsoll.apiserver.validation.pod.windows import containers_with_paths
from plimsoll.errors import DecodeError

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"

_PATH = FieldPath("metadata").child("annotations")
_DEFAULTS = ("runtime/default", "docker/default")


class _Tolerations(Wire, frozen=True):
    tolerations: tuple[Toleration, ...] = ()


def is_deletion_cost(text: str) -> bool:
    """Report whether a string is an int32 without a plus sign or leading zeros."""
    if text[:1] not in "-123456789" and text != "0":
        return False
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 32:
        return False
    return -(2**31) <= int(text) < 2**31


def validate_annotations(
    pod: View, options: PlacementOptions, *, allow_invalid_deletion_cost: bool
) -> FieldErrors:
    """Validate the values of annotations; the mirror pod annotation is validated in `claims.py`."""
    annotations = pod.metadata.annotations
    if annotations.get(TOLERATIONS):
        yield from _validate_tolerations(annotations[TOLERATIONS], options)
    cost = annotations.get(DELETION_COST)
    if cost is not None and not allow_invalid_deletion_cost and not is_deletion_cost(cost):
        yield invalid(_PATH.key(DELETION_COST), cost, "must be a 32bit integer")
    for name, value in annotations.items():
        if name == SECCOMP_OF_POD or name.startswith(SECCOMP):
            yield from _validate_seccomp(value, _PATH.child(name))
    profiles = {name: value for name, value in annotations.items() if name.startswith(APP_ARMOR)}
    if profiles:
        names = {container.name for container, _ in containers_with_paths(pod.spec, FieldPath(""))}
        for name, value in profiles.items():
            container = name.removeprefix(APP_ARMOR)
            if container not in names:
                yield invalid(_PATH.key(name), container, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                yield invalid(_PATH.key(name), value, "invalid AppArmor profile name")


def needs_options(pod: View) -> bool:
    """Return whether a pod has annotations for which `validate_annotations` uses its options."""
    annotations = pod.metadata.annotations
    return TOLERATIONS in annotations or DELETION_COST in annotations


def _validate_tolerations(text: str, options: PlacementOptions) -> FieldErrors:
    try:
        tolerations = codec.decode(f'{{"tolerations":{text}}}', _Tolerations).tolerations
    except DecodeError as error:
        yield invalid(_PATH, TOLERATIONS, str(error))
        return
    yield from validate_tolerations(tolerations, _PATH.child(TOLERATIONS), options)


def _validate_seccomp(profile: str, path: FieldPath) -> FieldErrors:
    if profile.startswith("localhost/"):
        yield from validate_local_descending_path(profile.removeprefix("localhost/"), path)
    elif profile not in (*_DEFAULTS, "unconfined"):
        yield invalid(path, profile, "must be a valid seccomp profile")


def validate_annotation_changes(pod: Pod, old: Pod) -> FieldErrors:
    """Validate that AppArmor annotations do not change."""
    now, before = pod.metadata.annotations, old.metadata.annotations
    for name in before:
        if name.startswith(APP_ARMOR) and now.get(name) != before[name]:
            yield forbidden(_PATH.key(name), "may not remove or update AppArmor annotations")
    for name in now:
        if name.startswith(APP_ARMOR) and name not in before:
            yield forbidden(_PATH.key(name), "may not add AppArmor annotations")


# -- agreement of annotations and fields


def validate_profile_annotations_match(pod: View, path: FieldPath) -> FieldErrors:
    """Validate that the profiles of a new pod agree in annotations and fields."""
    annotations, context = pod.metadata.annotations, pod.spec.security_context
    of_pod = None if context is None else context.seccomp_profile
    if of_pod is not None and SECCOMP_OF_POD in annotations:
        at = path.child("securityContext", "seccompProfile")
        yield from _validate_same(annotations[SECCOMP_OF_POD], of_pod, "seccomp", at)
    for container, where in containers_with_paths(pod.spec, path):
        inner = container.security_context
        own = None if inner is None else inner.seccomp_profile
        if own is not None and SECCOMP + container.name in annotations:
            at = where.child("securityContext", "seccompProfile")
            yield from _validate_same(annotations[SECCOMP + container.name], own, "seccomp", at)
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        return
    for container, where in containers_with_paths(pod.spec, path):
        inner = container.security_context
        profile = None if context is None else context.app_armor_profile
        if inner is not None and inner.app_armor_profile is not None:
            profile = inner.app_armor_profile
        if profile is not None and APP_ARMOR + container.name in annotations:
            at = where.child("securityContext", "appArmorProfile")
            yield from _validate_same(annotations[APP_ARMOR + container.name], profile, "apparmor", at)


def _validate_same(value: str, profile: View, kind: str, path: FieldPath) -> FieldErrors:
    defaults = _DEFAULTS if kind == "seccomp" else _DEFAULTS[:1]
    expected: Mapping[str, tuple[str, ...]] = {"Unconfined": ("unconfined",), "RuntimeDefault": defaults}
    if profile.type == "Localhost":
        if not value.startswith("localhost/"):
            yield forbidden(path.child("type"), f"{kind} type in annotation and field must match")
        elif value.removeprefix("localhost/") != profile.localhost_profile:
            detail = f"{kind} profile in annotation and field must match"
            yield forbidden(path.child("localhostProfile"), detail)
    elif profile.type in expected and value not in expected[profile.type]:
        yield forbidden(path.child("type"), f"{kind} type in annotation and field must match")
