"""Conflicts: devices allocated twice, overlapping partitions, exceeded capacity."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.drivers.fake.conflicts import DeviceAllocation, find_conflict
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.devices import FakeInventory, make_devices
from plimsoll.protocols.dra import ClaimRef

GPUS = make_devices(find_drivers("gpus")[0], "n")
NICS = make_devices(find_drivers("nics")[0], "n")
MIXED = make_devices(
    parse_drivers(
        {
            "drivers": [
                {
                    "name": "x.example.com",
                    "counterSets": [{"name": "set", "counters": {"m": 6, "n": 2}}],
                    "devices": [
                        {
                            "name": "one-{i}",
                            "count": 3,
                            "consumesCounters": [{"counterSet": "set", "counters": {"m": "{i+1}"}}],
                        },
                        {
                            "name": "shared-{i}",
                            "count": 3,
                            "allowMultipleAllocations": True,
                            "capacity": {"c": 4},
                            "consumesCounters": [{"counterSet": "set", "counters": {"m": 2, "n": 1}}],
                        },
                    ],
                }
            ]
        }
    )[0],
    "n",
)


def claim(name: str) -> ClaimRef:
    return ClaimRef("default", name, f"uid-{name}")


def test_a_device_is_allocated_to_one_claim() -> None:
    mine = DeviceAllocation(claim("a"), "gpu-0")
    assert find_conflict(GPUS, [], [mine]) is None
    conflict = find_conflict(GPUS, [mine], [DeviceAllocation(claim("b"), "gpu-0")])
    assert str(conflict) == "device gpu-0 is already allocated to claim default/a"


def test_overlapping_partitions_conflict() -> None:
    allocated = [
        DeviceAllocation(claim("a"), "gpu-0-1g-5gb-0"),
        DeviceAllocation(claim("b"), "gpu-0-2g-10gb-1"),
    ]
    assert find_conflict(GPUS, [], allocated) is None
    assert find_conflict(GPUS, allocated, [DeviceAllocation(claim("c"), "gpu-0-3g-20gb-1")]) is None
    full = find_conflict(GPUS, allocated, [DeviceAllocation(claim("c"), "gpu-0")])
    assert full is not None
    assert set(full.holders) == {claim("a"), claim("b")}
    assert (
        "needs 40Gi of gpu-0/memory, of which 25Gi is available (in use by claim default/a, default/b)"
        in str(full)
    )
    slices = find_conflict(GPUS, allocated, [DeviceAllocation(claim("c"), "gpu-0-2g-10gb-0")])
    assert slices is not None
    assert slices.of == "gpu-0/memory-slice-0"
    assert find_conflict(GPUS, allocated, [DeviceAllocation(claim("c"), "gpu-1")]) is None


def test_exceeding_shared_capacity_is_a_conflict() -> None:
    def share(name: str, amount: str) -> DeviceAllocation:
        return DeviceAllocation(claim(name), "nic-0", {"bandwidth": Quantity.parse(amount)})

    allocated = [share("a", "60G"), share("b", "30G")]
    assert find_conflict(NICS, allocated, [share("c", "10G")]) is None
    conflict = find_conflict(NICS, allocated, [share("c", "11G")])
    assert str(conflict) == (
        "device nic-0 needs 11G of bandwidth, of which 10G is available"
        " (in use by claim default/a, default/b)"
    )


def naive_fits(inventory: FakeInventory, all_of_them: list[DeviceAllocation]) -> bool:
    """Check capacity by adding up everything."""
    for name, device in inventory.devices.items():
        mine = [each for each in all_of_them if each.device == name]
        if not device.multiple and len(mine) > 1:
            return False
        for key, full in device.capacity.items() if device.multiple else ():
            if sum((each.consumed.get(key, ZERO) for each in mine), ZERO) > full:
                return False
    used = {each.device for each in all_of_them}
    for of, counters in inventory.counters.items():
        for key, full in counters.items():
            drawn = [inventory.devices[name].consumes.get(of, {}).get(key, ZERO) for name in used]
            if sum(drawn, ZERO) > full:
                return False
    return True


@given(
    st.sampled_from([GPUS, NICS, MIXED]).flatmap(
        lambda inventory: st.tuples(
            st.just(inventory),
            st.lists(
                st.lists(
                    st.tuples(st.sampled_from(sorted(inventory.devices)), st.integers(0, 60)), max_size=3
                ),
                max_size=8,
            ),
        )
    )
)
def test_accepted_claims_never_exceed_capacity(
    found: tuple[FakeInventory, list[list[tuple[str, int]]]],
) -> None:
    inventory, asked = found
    allocated: list[list[DeviceAllocation]] = []
    for number, results in enumerate(asked):
        desired = [
            DeviceAllocation(
                claim(str(number)), name, {"c": Quantity.of(n), "bandwidth": Quantity.of(n, scale=9)}
            )
            for name, n in results
        ]
        before = list(chain.from_iterable(allocated))
        conflict = find_conflict(inventory, before, desired)
        assert (conflict is None) == naive_fits(inventory, before + desired)
        if conflict is None:
            allocated.append(desired)
