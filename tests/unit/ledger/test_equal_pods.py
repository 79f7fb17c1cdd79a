"""Totals of pods that are computed once for equal pods, compared with those computed for each pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form, ResourceCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import compute_totals, make_entry
from plimsoll.ledger.equal_pods import find_key
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions
from tests.build import container, pod
from tests.sizes import examples

_LISTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(("1", "2", "3")), "memory": st.just("1Gi")}
)
_NAMES = ("a", "b")
_STATUSES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"allocatedResources": _LISTS}, optional={"resources": st.builds(dict, requests=_LISTS)}
)
_CHARGES = st.builds(
    ResourceCharge,
    quantity=st.sampled_from(("1", "2")).map(Quantity.parse),
    per_container=st.sampled_from((None, None, Quantity.of(1))),
    policy=st.sampled_from(("", "AddPerClaim", "AddPerReference", "Max")),
)
#: Parts of a pod from which its totals are computed.
_PARTS: dict[str, st.SearchStrategy[Any]] = {
    "names": st.permutations(_NAMES),
    "requests": st.tuples(_LISTS, _LISTS),
    "statuses": st.none() | st.tuples(_STATUSES, _STATUSES),
    "condition": st.sampled_from(("Deferred", "Infeasible", "")),
    "charge": st.none() | _CHARGES,
    "per_pod": st.sampled_from((None, ZERO, Quantity.of(1))),
    "referring": st.sampled_from((_NAMES, _NAMES[:1], ())),
    "overhead": st.sampled_from(({"cpu": "1"}, {}, {}, {})),
    "init": st.sampled_from(({"cpu": "9"}, {}, {}, {})),
    "pod_level": st.sampled_from(({"cpu": "9"}, {}, {}, {})),
}
_OPTIONS = st.builds(
    PodResourcesOptions,
    form=st.sampled_from((*Form, Form.V1_36, Form.V1_36)),
    count_claims=st.sampled_from((True, True, False)),
    use_status=st.booleans(),
    in_place_pod_level=st.booleans(),
    skip_pod_level=st.booleans(),
)


def _pod(parts: Mapping[str, Any]) -> tuple[Pod, tuple[ChargedClaim, ...]]:
    spec: dict[str, Any] = {"overhead": parts["overhead"]}
    if parts["init"]:
        spec["init"] = (container("i", **parts["init"]),)
    if parts["pod_level"]:
        spec["resources"] = {"requests": parts["pod_level"]}
    status: dict[str, Any] = {}
    if parts["statuses"]:
        pairs = zip(_NAMES, parts["statuses"], strict=True)
        status["containerStatuses"] = [{"name": name, **reported} for name, reported in pairs]
    if parts["condition"]:
        pending = {"type": "PodResizePending", "status": "True", "reason": parts["condition"]}
        status["conditions"] = [pending]
    containers = [
        container(name, **requests) for name, requests in zip(parts["names"], parts["requests"], strict=True)
    ]
    charges: tuple[ChargedClaim, ...] = ()
    if parts["charge"]:
        charge = ClaimCharge(
            "claim", parts["referring"], {"cpu": replace(parts["charge"], per_pod=parts["per_pod"])}
        )
        charges = (ChargedClaim(charge),)
    return pod("p", *containers, status=status, **spec), charges


@settings(max_examples=examples(800))
@given(st.fixed_dictionaries(_PARTS), st.data(), _OPTIONS, st.booleans())
def test_totals_of_equal_pods_are_those_of_each(
    parts: dict[str, Any], data: st.DataObject, options: PodResourcesOptions, shared: bool
) -> None:
    """A pod, and pods that differ from it in one part: each has its own totals."""
    profile = AccountingProfile(name="test", share_per_claim=shared)
    others = [{**parts, name: data.draw(part)} for name, part in _PARTS.items()]
    for one, charges in map(_pod, (parts, *others)):
        entry = make_entry(one, charges, options, profile)
        assert (entry.units, entry.non_zero) == compute_totals(one, charges, options, profile)


def test_replicas_have_one_key() -> None:
    def key(name: str, **fields: Any) -> object:
        one = pod(name, container("c", cpu="1"), **fields)
        return find_key(one, (), PodResourcesOptions(use_status=True), AccountingProfile.default())

    assert key("a") is not None
    assert key("a", node_name="n1") == key("b", node_name="n2")
    assert key("a", overhead={"cpu": "1"}) is None


def test_every_amount_of_a_charge_counts() -> None:
    profile, options = AccountingProfile.default(), PodResourcesOptions(count_claims=True)
    one, two = Quantity.of(1), Quantity.of(2)
    found = []
    for amounts in (ResourceCharge(one), ResourceCharge(two), ResourceCharge(one, two)):
        charged_claim = ChargedClaim(ClaimCharge("claim", (), {"cpu": amounts}))
        found.append(make_entry(pod("p", cpu="1"), (charged_claim,), options, profile).units["cpu"])
    assert found == [2000, 3000, 4000]
