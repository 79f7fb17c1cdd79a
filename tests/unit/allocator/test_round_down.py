"""Rounding an amount of capacity down by the request policy, compared with trying every amount."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.allocator.devices.capacity import check_policy, compute_consumed_amount, round_down
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity

amounts = st.integers(1, 30).map(Quantity.of)
ranges = st.builds(
    CapacityRequestPolicyRange,
    min=amounts,
    max=st.none() | st.integers(30, 60).map(Quantity.of),
    step=st.none() | amounts,
)
policies = (
    st.none()
    | st.builds(
        CapacityRequestPolicy,
        valid_range=ranges,
    )
    | st.builds(
        CapacityRequestPolicy,
        valid_values=st.lists(amounts, min_size=1).map(lambda each: tuple(sorted(each))),
    )
)


def consumes_exactly(amount: Quantity, entry: DeviceCapacity) -> bool:
    return compute_consumed_amount(amount, entry) == amount and not check_policy(
        "c", amount, entry.request_policy, False
    )


@given(most=st.integers(0, 60), policy=policies)
def test_no_larger_amount_is_allowed(most: int, policy: CapacityRequestPolicy | None) -> None:
    entry = DeviceCapacity(value=Quantity.of(100), request_policy=policy)
    tried = (Quantity.of(number) for number in range(most, 0, -1))
    expected = next((each for each in tried if consumes_exactly(each, entry)), ZERO)
    assert round_down(Quantity.of(most), entry) == expected
