"""Views of volumes, budgets and namespaces: decoded from the API and normalized like all others."""

from __future__ import annotations

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Namespace
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.errors import DecodeError


@pytest.mark.parametrize(
    ("head", "view"),
    [
        ('"apiVersion":"v1","kind":"Namespace"', Namespace),
        ('"apiVersion":"v1","kind":"PersistentVolume"', PersistentVolume),
        ('"apiVersion":"v1","kind":"PersistentVolumeClaim"', PersistentVolumeClaim),
        ('"apiVersion":"storage.k8s.io/v1","kind":"StorageClass"', StorageClass),
        ('"apiVersion":"storage.k8s.io/v1","kind":"CSINode"', CSINode),
        ('"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment"', VolumeAttachment),
        ('"apiVersion":"policy/v1","kind":"PodDisruptionBudget"', PodDisruptionBudget),
    ],
)
def test_kinds_have_views(head: str, view: type) -> None:
    assert type(codec.decode_object(f"{{{head}}}")) is view
    assert codec.convert({"metadata": {"name": "x"}, "spec": None}, view) == codec.convert(
        {"metadata": {"name": "x"}}, view
    )


def test_a_budget_has_its_allowed_disruptions() -> None:
    text = '{"spec":{"minAvailable":"50%","selector":null},"status":{"disruptionsAllowed":3}}'
    budget = codec.decode(text, PodDisruptionBudget)
    assert (budget.spec.selector, budget.status.disruptions_allowed) == (None, 3)
    with pytest.raises(DecodeError):
        codec.decode('{"status":{"disruptionsAllowed":"3"}}', PodDisruptionBudget)


def test_a_claim_is_bound_when_its_binding_is_completed() -> None:
    text = '{"metadata":{"annotations":{%s}},"spec":{"volumeName":"v","storageClassName":"k"}}'
    claim = codec.decode(text % "", PersistentVolumeClaim)
    assert not claim.bound
    assert claim.storage_class == "k"
    done = codec.decode(text % '"pv.kubernetes.io/bind-completed":"yes"', PersistentVolumeClaim)
    assert done.bound
    old = codec.decode(text % '"volume.beta.kubernetes.io/storage-class":""', PersistentVolumeClaim)
    assert old.storage_class == ""


def test_volume_sources() -> None:
    volume = codec.decode(
        '{"spec":{"capacity":{"storage":"10Gi"},"csi":{"driver":"d","volumeHandle":"h"},'
        '"nodeAffinity":{"required":{"nodeSelectorTerms":[]}}}}',
        PersistentVolume,
    )
    assert str(volume.spec.capacity["storage"]) == "10Gi"
    assert volume.spec.csi is not None
    assert volume.spec.csi.volume_handle == "h"
