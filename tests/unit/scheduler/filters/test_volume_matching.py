"""Choice of an existing volume for a claim, against a naive form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Node
from plimsoll.api.label_selection import CompiledLabelSelector, SelectorProblem, compile_label_selector
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.api.volume_matching import MatchingVolumes, find_matching_volumes
from plimsoll.scheduler.filters.volume_reach import is_reachable
from tests.build import node
from tests.sizes import examples
from tests.unit.scheduler.filters.volume_objects import claim, static_volume

HOSTS = ("a", "b")


def choose(
    wanted: PersistentVolumeClaim, volumes: list[PersistentVolume], at: Node, excluded: Any = ()
) -> str | None:
    """Return the name of the chosen volume."""
    matching = find_matching_volumes(wanted, volumes)
    assert isinstance(matching, MatchingVolumes)
    found = matching.choose(lambda volume: reaches(volume, at), excluded)
    return None if found is None else found.metadata.name


def reaches(volume: PersistentVolume, at: Node) -> bool:
    affinity = volume.required_affinity
    return affinity is None or is_reachable(affinity, at)


def naive_choice(
    wanted: PersistentVolumeClaim, volumes: list[PersistentVolume], at: Node, excluded: frozenset[str]
) -> str | None:
    """Choose a volume by looking at every one of them, in the order of names."""
    best: PersistentVolume | None = None
    for one in sorted(volumes, key=lambda each: each.metadata.name):
        spec, reference = one.spec, one.spec.claim_ref
        if one.metadata.name in excluded or one.metadata.deletion_timestamp is not None:
            continue
        own = reference is not None
        if reference is not None and (
            (reference.namespace, reference.name) != (wanted.metadata.namespace, wanted.metadata.name)
            or reference.uid not in ("", wanted.metadata.uid)
        ):
            continue
        need = wanted.spec.resources.requests.get("storage")
        if need is not None and spec.capacity["storage"] < need:
            continue
        if (spec.volume_mode or "Filesystem") != (wanted.spec.volume_mode or "Filesystem"):
            continue
        if (spec.volume_attributes_class_name or "") != (wanted.spec.volume_attributes_class_name or ""):
            continue
        if own:
            return one.metadata.name if reaches(one, at) else None
        if one.status.phase != "Available" or spec.storage_class_name != wanted.spec.storage_class_name:
            continue
        if wanted.spec.selector is not None:
            selector = compile_label_selector(wanted.spec.selector)
            assert isinstance(selector, CompiledLabelSelector)
            if not selector.matches(one.metadata.labels):
                continue
        if not reaches(one, at) or any(mode not in spec.access_modes for mode in wanted.spec.access_modes):
            continue
        if best is None or spec.capacity["storage"] < best.spec.capacity["storage"]:
            best = one
    return None if best is None else best.metadata.name


MODES = st.sampled_from((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"), ("ReadOnlyMany",)))
VOLUME_MODES = st.sampled_from((None, None, "Filesystem", "Block"))
LABELS = st.sampled_from(({}, {"tier": "fast"}, {"tier": "slow"}))
CLASSES = st.sampled_from(("local", "local", "other"))
ATTRIBUTES = st.sampled_from((None, None, "", "gold"))
claims = st.builds(
    lambda size, modes, mode, selector, attributes: claim(
        "data", storage_class="local", size=size, modes=modes, volumeMode=mode, selector=selector,
        volumeAttributesClassName=attributes,
    ),
    st.sampled_from(("", "1Gi", "5Gi")), MODES, VOLUME_MODES,
    st.sampled_from((None, None, {}, {"matchLabels": {"tier": "fast"}})), ATTRIBUTES,
)  # fmt: skip
OWN = claim("data")
OTHERS = (None, None, None, OWN, claim("data", metadata={"uid": ""}), claim("data", metadata={"uid": "x"}),
          claim("else"))  # fmt: skip
volumes = st.builds(
    lambda name, size, group, host, owner, modes, labels, phase, mode, deleted, attributes: static_volume(
        name, size, group, host=host, claimed_by=owner, modes=modes, labels=labels, phase=phase,
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}, volumeMode=mode,
        volumeAttributesClassName=attributes,
    ),
    st.sampled_from([f"v{number}" for number in range(8)]), st.sampled_from(("500Mi", "1Gi", "5Gi", "9Gi")),
    CLASSES, st.sampled_from(("", *HOSTS)), st.sampled_from(OTHERS), MODES, LABELS,
    st.sampled_from(("Available", "Available", "Pending", "Released")), VOLUME_MODES,
    st.sampled_from((False, False, True)), ATTRIBUTES,
)  # fmt: skip


@given(
    wanted=claims,
    given_volumes=st.lists(volumes, max_size=8, unique_by=lambda each: each.metadata.name),
    host=st.sampled_from(HOSTS),
    excluded=st.frozensets(st.sampled_from(("v0", "v1")), max_size=2),
)
@settings(max_examples=examples(400))
def test_the_choice_is_that_of_the_naive_form(
    wanted: Any, given_volumes: list[Any], host: str, excluded: frozenset[str]
) -> None:
    at = node(host, labels={"kubernetes.io/hostname": host})
    assert choose(wanted, given_volumes, at, excluded) == naive_choice(wanted, given_volumes, at, excluded)


def test_the_smallest_volume_that_is_large_enough() -> None:
    at = node("a", labels={"kubernetes.io/hostname": "a"})
    known = [static_volume("big", "20Gi"), static_volume("small", "1Gi"), static_volume("fitting", "6Gi")]
    assert choose(claim("data", storage_class="local", size="5Gi"), known, at) == "fitting"
    assert choose(claim("data", storage_class="local", size="5Gi"), known, at, {"fitting"}) == "big"
    assert choose(claim("data", storage_class="local", size="50Gi"), known, at) is None


def test_a_volume_that_refers_to_the_claim_comes_first_even_if_it_is_elsewhere() -> None:
    wanted = claim("data", storage_class="local", size="1Gi")
    known = [static_volume("near", host="a"), static_volume("own", host="b", claimed_by=wanted)]
    for host, expected in (("a", None), ("b", "own")):
        assert choose(wanted, known, node(host, labels={"kubernetes.io/hostname": host})) == expected


@pytest.mark.parametrize("operator", ["Near", "In"])
def test_an_invalid_selector_is_an_error(operator: str) -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": operator, "values": []}]}
    wanted = claim("data", storage_class="local", selector=selector)
    assert isinstance(find_matching_volumes(wanted, ()), SelectorProblem)
