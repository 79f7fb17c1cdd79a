"""Splitting of long synchronize messages."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.nri.split import split
from plimsoll.protocols.messages import nri

names = st.lists(st.text("ab", max_size=300), max_size=12)


@given(names, names, st.integers(2, 700))
def test_parts_are_complete_ordered_and_bounded(pods: list[str], containers: list[str], largest: int) -> None:
    parts = split([nri.PodSandbox(id=n) for n in pods], [nri.Container(id=n) for n in containers], largest)
    alone = [nri.SynchronizeRequest(pods=[nri.PodSandbox(id=n)], more=True) for n in (*pods, *containers)]
    if parts is None:
        assert any(part.ByteSize() > largest for part in alone)
        return
    assert [pod.id for part in parts for pod in part.pods] == pods
    assert [container.id for part in parts for container in part.containers] == containers
    assert all(part.ByteSize() <= largest for part in parts)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    # No part could have taken what begins the next one.
    for part, following in itertools.pairwise(parts):
        fuller = nri.SynchronizeRequest()
        fuller.CopyFrom(part)
        first = nri.SynchronizeRequest(
            pods=following.pods[:1], containers=[] if following.pods else following.containers[:1]
        )
        fuller.MergeFrom(first)
        assert fuller.ByteSize() > largest


def test_an_empty_list_is_one_empty_part() -> None:
    assert split([], []) == [nri.SynchronizeRequest()]
