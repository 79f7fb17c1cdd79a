"""Regression tests of bugs that the allocator of Kubernetes has had.

Numbers are issues and pull requests of kubernetes/kubernetes. Where the bug was in another component, the
part that the allocator and its state answer for is tested.
"""

from __future__ import annotations

import msgspec

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    AllocationState,
    DeviceId,
    Inventory,
    Refusal,
    allocate_claims,
)
from plimsoll.allocator.devices.capacity import CapacityFault, Consumption, consume
from plimsoll.api.codec import convert
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    AllocationResult,
    DeviceCapacity,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from tests.build import (
    DRIVER,
    NODE,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    resource_slice,
)
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.holdings import hold_device

OTHER = "nic.example.com"


def share(name: str, number: int = 1, pool: str = "p", **amounts: str) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        driver=DRIVER,
        pool=pool,
        device=name,
        share_id=f"s{number}",
        consumed_capacity={key: Quantity.parse(text) for key, text in amounts.items()},
    )


def held(*shares: DeviceRequestAllocationResult) -> AllocationState:
    state = AllocationState()
    for each in shares:
        state.hold(each)
    return state


def group(value: str) -> str:
    return f'device.attributes["{DRIVER}"].grp == "{value}"'


def with_allocation(one: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, allocation=allocation))


# -- cases listed in KEP-5075


def test_133705_the_next_device_is_tried_when_the_first_is_full() -> None:
    """The first device's capacity was taken by another claim, and the free second one was never given."""
    slices = [resource_slice([device(f"d{n}", shared=True, capacity={"mem": "2"}) for n in range(3)])]
    state = held(share("d0", mem="2"))
    wanted = claim("c", exactly(capacity={"mem": "2"}))
    assert picked(attempt(slices, wanted, state=state)) == [["d1"]]
    assert picked(attempt(slices, claim("c", exactly(count=2, capacity={"mem": "2"})), state=state)) == [
        ["d1", "d2"]
    ]
    # The index of the device within its request is not the index within its slice.
    two = claim("c", exactly("a", capacity={"mem": "1"}), exactly("b", count=2, capacity={"mem": "2"}))
    assert isinstance(attempt(slices, two, state=state), Refusal)
    state.release(share("d0", mem="2"))
    assert picked(attempt(slices, two, state=state)) == [["d0", "d1", "d2"]]


def test_134100_a_second_share_does_not_need_the_counters_again() -> None:
    """The first share drew the device's counters, and the second share was refused for want of them."""
    slices = [
        resource_slice(
            [
                device("half", shared=True, capacity={"mem": "4"}, draws={"set": {"units": "3"}}),
                device("whole", shared=True, capacity={"mem": "8"}, draws={"set": {"units": "4"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"set": {"units": "4"}}, name="b", count=2),
    ]
    two = claim("c", exactly("a", capacity={"mem": "1"}), exactly("b", capacity={"mem": "1"}))
    assert picked(attempt(slices, two)) == [["half", "half"]]
    one = claim("c", exactly(capacity={"mem": "1"}))
    assert picked(attempt(slices, one, one)) == [["half"], ["half"]]
    assert picked(attempt(slices, one, state=held(share("half", mem="1")))) == [["half"]]


def test_134519_every_share_has_an_id_of_its_own() -> None:
    """The driver did not know which share of a device it prepares, and two shares got the same CDI ID."""
    slices = [resource_slice([device("d0", shared=True, capacity={"mem": "4"})])]
    one = claim("c", exactly("a", capacity={"mem": "1"}), exactly("b", capacity={"mem": "1"}))
    outcome = attempt(slices, one, claim("other", exactly("c", capacity={"mem": "1"})))
    made = results(outcome)
    assert [each.device for each in made] == ["d0", "d0", "d0"]
    assert [each.share_id for each in made] == ["share-1", "share-2", "share-3"]


def test_136734_the_shares_of_other_claims_are_read_from_their_statuses() -> None:
    """Shares that recorded no capacity were not loaded, so their devices seemed to be unused."""
    slices = [
        resource_slice(
            [
                device("d0", shared=True, draws={"set": {"units": "3"}}),
                device("d1", draws={"set": {"units": "3"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"set": {"units": "4"}}, name="b", count=2),
    ]
    allocated: ResourceClaim = convert(
        {
            "metadata": {"name": "earlier", "namespace": "default"},
            "status": {
                "allocation": {
                    "devices": {"results": [{"driver": DRIVER, "pool": "p", "device": "d0", "shareID": "s"}]}
                }
            },
        },
        ResourceClaim,
    )
    state = AllocationState.of([allocated])
    assert [id.device for id, _ in state] == ["d0"]
    dedicated = claim("c", exactly(select="!device.allowMultipleAllocations"))
    assert isinstance(attempt(slices, dedicated, state=state), Refusal)
    assert picked(attempt(slices, dedicated)) == [["d1"]]


# -- later bugs


def test_139034_partitions_that_exclude_each_other_are_not_both_allocated() -> None:
    """Counters were rebuilt without shared devices (#139040): the same silicon was handed out twice."""
    slices = [
        resource_slice(
            [
                device("sliced", shared=True, capacity={"mem": "8"}, draws={"set": {"gpu": "1"}}),
                device("whole", draws={"set": {"gpu": "1"}}),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"set": {"gpu": "1"}}, name="b", count=2),
    ]
    whole = claim("c", exactly(select="!device.allowMultipleAllocations"))
    for taken in (share("sliced", mem="2"), share("sliced")):
        assert isinstance(attempt(slices, whole, state=held(taken)), Refusal)
    # And the other way round.
    sliced = claim("c", exactly(select="device.allowMultipleAllocations", capacity={"mem": "1"}))
    whole_held = held(DeviceRequestAllocationResult(driver=DRIVER, pool="p", device="whole"))
    assert isinstance(attempt(slices, sliced, state=whole_held), Refusal)
    assert picked(attempt(slices, sliced, state=held(share("sliced", mem="2")))) == [["sliced"]]


def test_140433_a_stored_share_is_charged_once() -> None:
    """A share without recorded capacity was charged again by the next share (#140437, #140450)."""
    slices = [
        resource_slice([device("d0", shared=True, draws={"set": {"units": "2"}})], name="a", count=2),
        resource_slice(counters={"set": {"units": "2"}}, name="b", count=2),
    ]
    state = held(share("d0", 1), share("d0", 2))
    assert picked(attempt(slices, claim("c", exactly("a"), exactly("b")), state=state)) == [["d0", "d0"]]


def test_140431_a_discarded_candidate_leaves_no_state() -> None:
    """Counters of a candidate rejected for its taint, or undone in backtracking, stayed reserved."""
    counters = resource_slice(counters={"set": {"units": "2"}}, name="z", count=2)
    taint = [{"key": "sick", "effect": "NoSchedule"}]

    # Rejected for a taint, then for a constraint: the next device finds all counters there.
    for first in (
        device("d0", taints=taint, draws={"set": {"units": "2"}}, grp="a"),
        device("d0", draws={"set": {"units": "2"}}),
    ):
        slices = [
            resource_slice([first, device("d1", draws={"set": {"units": "2"}}, grp="a")], name="a", count=2),
            counters,
        ]
        wanted = claim("c", exactly(), constraints=[{"matchAttribute": f"{DRIVER}/grp"}])
        assert picked(attempt(slices, wanted)) == [["d1"]]

    # Undone: d0 is taken first, and only without it the second request can be served.
    slices = [
        resource_slice(
            [
                device("d0", shared=True, draws={"set": {"units": "2"}}, grp="a"),
                device("d1", draws={"set": {"units": "1"}}, grp="a"),
                device("d2", draws={"set": {"units": "1"}}, grp="b"),
            ],
            name="a",
            count=2,
        ),
        counters,
    ]
    wanted = claim("c", exactly("a", select=group("a")), exactly("b", select=group("b")))
    assert picked(attempt(slices, wanted)) == [["d1", "d2"]]


def test_140431_an_earlier_empty_share_survives_the_undoing_of_a_later_one() -> None:
    """Two shares of nothing: with the second undone, the first still stands for the drawn counters."""
    zero = {"mem": {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0", "1"]}}}
    slices = [
        resource_slice(
            [
                device("d0", shared=True, capacity=zero, draws={"set": {"units": "1"}}, grp="a"),
                device("d1", grp="b"),
                device("d2", grp="c"),
            ],
            name="a",
            count=2,
        ),
        resource_slice(counters={"set": {"units": "1"}}, name="z", count=2),
    ]
    wanted = claim(
        "c",
        exactly("a", select=group("a")),
        exactly("b"),
        exactly("c", select=group("a")),
        constraints=[{"distinctAttribute": f"{DRIVER}/grp", "requests": ["b", "c"]}],
    )
    assert picked(attempt(slices, wanted)) == [["d0", "d1", "d0"]]


def test_140435_pools_of_the_same_name_have_separate_counters() -> None:
    """Counters were kept by pool name alone: one driver's devices used up those of another."""
    slices = []
    for driver in (DRIVER, OTHER):
        slices += [
            resource_slice([device("d0", draws={"set": {"units": "1"}})], name="a", count=2, driver=driver),
            resource_slice(counters={"set": {"units": "1"}}, name="b", count=2, driver=driver),
        ]
    made = results(attempt(slices, claim("c", exactly(count=2))))
    assert [(each.driver, each.device) for each in made] == [(DRIVER, "d0"), (OTHER, "d0")]
    # What is held of the one is nothing to the other.
    state = AllocationState()
    hold_device(state, DeviceId(OTHER, "p", "d0"))
    made = results(attempt(slices, claim("c", exactly()), state=state))
    assert [each.driver for each in made] == [DRIVER]
    assert isinstance(attempt(slices, claim("c", exactly(count=2)), state=state), Refusal)


def test_140435_other_counter_sets_under_the_same_pool_name() -> None:
    """The second driver's counters do not even have the same names."""
    slices = [
        resource_slice([device("d0", draws={"set": {"units": "1"}})], name="a", count=2),
        resource_slice(counters={"set": {"units": "1"}}, name="b", count=2),
        resource_slice([device("d0", draws={"ports": {"vf": "8"}})], name="c", count=2, driver=OTHER),
        resource_slice(counters={"ports": {"vf": "8"}}, name="d", count=2, driver=OTHER),
    ]
    assert len(results(attempt(slices, claim("c", exactly(count=2))))) == 2


def test_140441_rounding_never_wraps_around() -> None:
    """A request near 2**63 rounded up to a negative amount, which fitted everywhere (#140442)."""
    policy = {"default": "100", "validRange": {"min": "0", "step": "100"}}
    entry: DeviceCapacity = convert({"value": "1k", "requestPolicy": policy}, DeviceCapacity)
    for text in (str(2**63 - 1), str(2**63), "1e30"):
        asked = {"mem": Quantity.parse(text)}
        assert consume(asked, {"mem": entry}) == CapacityFault("mem", asked["mem"], negative=False)
        slices = [
            resource_slice(
                [device("d0", shared=True, capacity={"mem": {"value": "1k", "requestPolicy": policy}})]
            )
        ]
        outcome = attempt(slices, claim("c", exactly(capacity={"mem": text})))
        assert isinstance(outcome, AllocationFault)
        assert outcome.kind == "capacity"


def test_140441_a_large_request_that_can_be_rounded_is_refused_as_too_large() -> None:
    entry: DeviceCapacity = convert(
        {"value": "1k", "requestPolicy": {"default": "100", "validRange": {"min": "0", "step": "100"}}},
        DeviceCapacity,
    )
    found = consume({"mem": Quantity.parse("4E")}, {"mem": entry})
    assert not isinstance(found, (Consumption, CapacityFault))
    assert (found.rule, found.name) == ("short", "mem")


def test_140087_an_allocated_claim_keeps_a_pod_on_its_node() -> None:
    """A claim allocated just before, not yet written, was considered usable on every node."""
    slices = [
        resource_slice([device("d0")]),
        resource_slice([device("d0")], name="t", pool="q", nodeName="node-b"),
    ]
    first = attempt(slices, claim("c", exactly()))
    assert isinstance(first, Allocation)
    pending = with_allocation(claim("shared", exactly()), first.results[0])
    state = AllocationState.of([pending])
    mine = attempt(slices, claim("c", exactly()), pending, at=node("node-b"), state=state)
    assert isinstance(mine, Refusal)
    assert mine.allocated_elsewhere is not None
    assert mine.allocated_elsewhere.claim == "default/shared"
    here = attempt(slices, pending, at=node(NODE), state=state)
    assert isinstance(here, Allocation)
    assert here.results == (first.results[0],)


def test_137347_all_in_a_prioritized_list_falls_through_to_the_next_alternative() -> None:
    """All devices could not be had, some stayed taken, and the alternatives after it failed, too."""
    slices = [resource_slice([device(f"d{n}", grp="a") for n in range(3)])]
    state = held()
    hold_device(state, DeviceId(DRIVER, "p", "d2"))
    wanted = claim("c", first_available("r", exactly("all", mode="All"), exactly("two", count=2)))
    outcome = attempt(slices, wanted, state=state)
    assert picked(outcome) == [["d0", "d1"]]
    assert {each.request for each in results(outcome)} == {"r/two"}
    # Nothing matches the first alternative at all.
    none = claim("c", first_available("r", exactly("all", mode="All", select=group("z")), exactly("one")))
    assert picked(attempt(slices, none, state=state)) == [["d0"]]


def test_139017_allocated_and_unallocated_claims_together() -> None:
    """The chosen alternatives were looked up by the number of the claim among all, not among the new ones."""
    slices = [resource_slice([device(f"d{n}", grp="a") for n in range(3)])]
    before = attempt(slices, claim("c", exactly()))
    assert isinstance(before, Allocation)
    old = with_allocation(claim("old", exactly()), before.results[0])
    new = claim(
        "new", first_available("r", exactly("none", select=group("z")), exactly("some")), exactly("s")
    )
    outcome = attempt(slices, old, new, state=AllocationState.of([old]))
    assert isinstance(outcome, Allocation)
    assert picked(outcome) == [["d0"], ["d1", "d2"]]
    assert outcome.alternatives == ((0,), (1, 0))
    other_way = attempt(slices, new, old, state=AllocationState.of([old]))
    assert isinstance(other_way, Allocation)
    assert other_way.alternatives == ((1, 0), (0,))


def test_136269_no_device_is_allocated_to_two_claims() -> None:
    """Under load two claims got the same device: the state was older than the last allocation."""
    slices = [resource_slice([device(f"d{n}") for n in range(8)])]
    inventory = Inventory(slices)
    state = AllocationState()
    given: list[str] = []
    for number in range(8):
        outcome = allocate_claims(
            inventory,
            state,
            [claim(f"c{number}", exactly())],
            node(),
            classes={"gpu": device_class()},
            new_id=str,
        )
        assert isinstance(outcome, Allocation)
        given += [each.device for each in results(outcome)]
        state.hold_all(outcome.results[0])
    assert given == [f"d{n}" for n in range(8)]
    outcome = allocate_claims(
        inventory, state, [claim("c", exactly())], node(), classes={"gpu": device_class()}, new_id=str
    )
    assert isinstance(outcome, Refusal)
    # Within one call, too.
    many = [claim(f"c{number}", exactly()) for number in range(8)]
    assert picked(attempt(slices, *many)) == [[name] for name in given]


def test_141471_a_device_is_free_when_its_last_holder_is_gone() -> None:
    """A pod deleted by force freed a device that was still in use: only releasing what holds it frees it."""
    slices = [resource_slice([device("d0")])]
    whole = DeviceRequestAllocationResult(driver=DRIVER, pool="p", device="d0")
    state = held(whole, whole)
    state.release(whole)
    assert isinstance(attempt(slices, claim("c", exactly()), state=state), Refusal)
    state.release(whole)
    assert picked(attempt(slices, claim("c", exactly()), state=state)) == [["d0"]]
