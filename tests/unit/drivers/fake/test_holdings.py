"""Nothing is handed out twice: devices, overlapping partitions, more of a capacity than there is."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.devices import Arrangement, make_devices
from plimsoll.drivers.fake.holdings import Holding, find_conflict
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


def test_a_device_goes_to_one_claim() -> None:
    mine = Holding(claim("a"), "gpu-0")
    assert find_conflict(GPUS, [], [mine]) is None
    conflict = find_conflict(GPUS, [mine], [Holding(claim("b"), "gpu-0")])
    assert str(conflict) == "device gpu-0 is held by claim default/a"


def test_partitions_that_overlap() -> None:
    held = [Holding(claim("a"), "gpu-0-1g-5gb-0"), Holding(claim("b"), "gpu-0-2g-10gb-1")]
    assert find_conflict(GPUS, [], held) is None
    assert find_conflict(GPUS, held, [Holding(claim("c"), "gpu-0-3g-20gb-1")]) is None
    whole = find_conflict(GPUS, held, [Holding(claim("c"), "gpu-0")])
    assert whole is not None
    assert set(whole.holders) == {claim("a"), claim("b")}
    assert "needs 40Gi of gpu-0/memory, of which 25Gi is left beside claim default/a, default/b" in str(whole)
    slices = find_conflict(GPUS, held, [Holding(claim("c"), "gpu-0-2g-10gb-0")])
    assert slices is not None
    assert slices.of == "gpu-0/memory-slice-0"
    assert find_conflict(GPUS, held, [Holding(claim("c"), "gpu-1")]) is None


def test_more_bandwidth_than_there_is() -> None:
    def share(name: str, amount: str) -> Holding:
        return Holding(claim(name), "nic-0", {"bandwidth": Quantity.parse(amount)})

    held = [share("a", "60G"), share("b", "30G")]
    assert find_conflict(NICS, held, [share("c", "10G")]) is None
    conflict = find_conflict(NICS, held, [share("c", "11G")])
    assert str(conflict) == (
        "device nic-0 needs 11G of bandwidth, of which 10G is left beside claim default/a, default/b"
    )


def naive_fits(arrangement: Arrangement, all_of_them: list[Holding]) -> bool:
    """Everything added up afresh."""
    for name, device in arrangement.devices.items():
        mine = [each for each in all_of_them if each.device == name]
        if not device.multiple and len(mine) > 1:
            return False
        for key, whole in device.capacity.items() if device.multiple else ():
            if sum((each.consumed.get(key, ZERO) for each in mine), ZERO) > whole:
                return False
    used = {each.device for each in all_of_them}
    for of, counters in arrangement.counters.items():
        for key, whole in counters.items():
            drawn = [arrangement.devices[name].consumes.get(of, {}).get(key, ZERO) for name in used]
            if sum(drawn, ZERO) > whole:
                return False
    return True


@given(
    st.sampled_from([GPUS, NICS, MIXED]).flatmap(
        lambda arrangement: st.tuples(
            st.just(arrangement),
            st.lists(
                st.lists(
                    st.tuples(st.sampled_from(sorted(arrangement.devices)), st.integers(0, 60)), max_size=3
                ),
                max_size=8,
            ),
        )
    )
)
def test_what_is_granted_always_fits(found: tuple[Arrangement, list[list[tuple[str, int]]]]) -> None:
    arrangement, asked = found
    held: list[list[Holding]] = []
    for number, results in enumerate(asked):
        wanted = [
            Holding(claim(str(number)), name, {"c": Quantity.of(n), "bandwidth": Quantity.of(n, scale=9)})
            for name, n in results
        ]
        before = list(chain.from_iterable(held))
        conflict = find_conflict(arrangement, before, wanted)
        assert (conflict is None) == naive_fits(arrangement, before + wanted)
        if conflict is None:
            held.append(wanted)
