"""Loading the claim checkpoint at start, and recovery from a lost one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.checkpoint import FindingSeverity, read, render
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims import kubelet_checkpoint as kubelet_file
from plimsoll.node.claims.checkpoint import (
    KIND,
    VERSION,
    ClaimCheckpoint,
    decode_body,
    encode_body,
    encode_claim,
)
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.layout import Layout
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers, make_claim, make_pod
from tests.unit.node.claims.kubelet_files import encode as encode_kubelet_file


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
SOME = st.lists(TEXTS, max_size=2).map(tuple)
DEVICES = st.builds(PreparedDevice, TEXTS, TEXTS, SOME, SOME, st.none() | TEXTS)
CLAIMS = st.builds(
    ClaimInfo,
    st.builds(ClaimRef, TEXTS, TEXTS, TEXTS),
    st.frozensets(TEXTS, max_size=3),
    st.dictionaries(TEXTS, st.lists(DEVICES, max_size=2).map(tuple), max_size=2),
    st.booleans(),
    st.frozensets(TEXTS, max_size=2),
)


@given(st.lists(CLAIMS, max_size=3, unique_by=lambda claim: claim.ref.uid))
def test_a_checkpoint_survives_a_round_trip(claims: list[ClaimInfo]) -> None:
    raw = render(KIND, VERSION, encode_body(map(encode_claim, claims), "b"))
    body, problem = read(raw, KIND, VERSION, {})
    assert problem == ""
    assert decode_body(body) == ClaimCheckpoint(tuple(claims), "b")


ROW = {"namespace": "n", "name": "c", "uid": "u", "ready": True, "pods": [], "drivers": {}}


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"claims": 1},
        {"claims": [{}]},
        {"claims": [{**ROW, "ready": "yes"}]},
        {"claims": [ROW, ROW]},
        {"claims": [{**ROW, "drivers": {"d": [{"pool": "p"}]}}]},
    ],
)
def test_a_checkpoint_of_another_shape_is_quarantined(layout: Layout, body: object) -> None:
    layout.claims.write_bytes(render(KIND, VERSION, body))
    cache = ClaimInfoCache.open(layout, FakeDrivers())
    assert cache.claims() == ()
    assert cache.needs_rebuild
    assert [finding.severity for finding in cache.findings] == [FindingSeverity.ERROR]
    assert len(list(layout.quarantine.iterdir())) == 1


def test_unknown_fields_are_accepted(layout: Layout) -> None:
    layout.claims.write_bytes(render(KIND, VERSION, {"claims": [{**ROW, "more": 1}], "other": []}))
    cache = ClaimInfoCache.open(layout, FakeDrivers())
    assert cache.claims() == (ClaimInfo(ClaimRef("n", "c", "u"), ready=True),)
    assert cache.findings == ()


def test_a_newer_checkpoint_version_is_kept(layout: Layout) -> None:
    content = render(KIND, VERSION + 1, {"claims": {}})
    layout.claims.write_bytes(content)
    cache = ClaimInfoCache.open(layout, FakeDrivers(), now=lambda: 0.0)
    assert cache.needs_rebuild
    (place,) = layout.quarantine.iterdir()
    assert place.read_bytes() == content
    assert place.name == "claims.json.19700101T000000Z"
    assert "newer" in cache.findings[0].what


def kubelet(layout: Layout, *claims: kubelet_file.KubeletClaim) -> bytes:
    raw = encode_kubelet_file(claims)
    layout.kubelet_claims.write_bytes(raw)
    return raw


def test_claims_of_a_kubelet_checkpoint_are_adopted(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p"]), make_claim("b", users=["gone"]))
    raw = kubelet(
        layout,
        kubelet_file.KubeletClaim(
            "uid-a",
            "a",
            "default",
            frozenset({"p"}),
            {GPU: (kubelet_file.KubeletDevice("node", "a-dev", None, None, ("v/c=a",)),)},
        ),
        kubelet_file.KubeletClaim("uid-b", "b", "default", frozenset({"gone"}), {GPU: None}),
        kubelet_file.KubeletClaim("uid-c", "c", "default", None, None),
    )
    fake_drivers.held[GPU] = {"uid-a", "uid-b"}

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        assert not cache.needs_rebuild
        assert [finding.severity for finding in cache.findings] == [FindingSeverity.INFO]
        assert {claim.ref.name: claim.ready for claim in cache.claims()} == {
            "a": False,
            "b": False,
            "c": False,
        }
        # What the kubelet knew can be seen, but has to be prepared once more before it is used.
        pod = make_pod("p", "a")
        known = cache.claims_of_container(pod, pod.spec.containers[0])
        assert known is not None
        assert known[0].drivers[GPU][0].cdi == ("v/c=a",)
        assert await cache.prepare(pod, fake_drivers.named("a")) == ()
        assert fake_drivers.calls == [("prepare", GPU, ("uid-a",))]
        assert await cache.reconcile(["p"]) == ()
        assert fake_drivers.held == {GPU: {"uid-a"}}
        assert [claim.ref.name for claim in cache.claims()] == ["a"]
        # From now on ours is the record, and theirs is left as it was.
        again = ClaimInfoCache.open(layout, fake_drivers)
        assert again.claims() == cache.claims()
        assert again.findings == ()
        assert layout.kubelet_claims.read_bytes() == raw

    asyncio.run(scenario())


@pytest.mark.parametrize("raw", [b"", b"null", b"{", b'{"Data":"{}","Checksum":1}'])
def test_a_damaged_kubelet_checkpoint_is_reported(layout: Layout, raw: bytes) -> None:
    layout.kubelet_claims.write_bytes(raw)
    cache = ClaimInfoCache.open(layout, FakeDrivers())
    assert cache.needs_rebuild
    (finding,) = cache.findings
    assert str(layout.kubelet_claims) in finding.what
    assert layout.kubelet_claims.read_bytes() == raw


def test_an_empty_kubelet_checkpoint_is_not_reported(layout: Layout) -> None:
    layout.kubelet_claims.write_bytes(encode_kubelet_file(None))
    cache = ClaimInfoCache.open(layout, FakeDrivers())
    assert (cache.claims(), cache.findings, cache.needs_rebuild) == ((), (), False)


def test_an_unreadable_kubelet_checkpoint_is_reported(layout: Layout) -> None:
    layout.kubelet_claims.mkdir()
    (finding,) = ClaimInfoCache.open(layout, FakeDrivers()).findings
    assert "Is a directory" in finding.what


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 4096, b"half"])
def test_a_damaged_checkpoint_is_quarantined_and_rebuilt(layout: Layout, content: bytes) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(
        make_claim("a", users=["p"]), make_claim("b", NIC, users=["p", "q"]), make_claim("c", users=["x"])
    )
    pods = make_pod("p", "a", "b"), make_pod("q", "b")
    claims = [(pod, fake_drivers.named(*(each.name for each in pod.spec.resource_claims))) for pod in pods]

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        for pod, named in [*claims, (make_pod("x", "c"), fake_drivers.named("c"))]:
            assert await cache.prepare(pod, named) == ()
        before = {claim.ref.uid: claim for claim in cache.claims()}
        # The record is damaged while the agent is down, and x is deleted by force.
        layout.claims.write_bytes(layout.claims.read_bytes()[:100] if content == b"half" else content)
        again = ClaimInfoCache.open(layout, fake_drivers)
        assert [finding.severity for finding in again.findings] == [FindingSeverity.ERROR]
        assert again.claims() == ()
        assert await again.rebuild(claims) == ()
        del before["uid-c"]
        assert {claim.ref.uid: claim for claim in again.claims()} == before
        assert not again.needs_rebuild
        assert fake_drivers.held == {GPU: {"uid-a", "uid-c"}, NIC: {"uid-b"}}
        third = ClaimInfoCache.open(layout, fake_drivers)
        assert third.findings == ()
        assert {claim.ref.uid: claim for claim in third.claims()} == before

    asyncio.run(scenario())


def test_rebuilding_continues_after_faults(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(
        make_claim("a", users=["p"]),
        make_claim("b", NIC, users=["q"]),
        make_claim("d", users=["other"]),
    )
    fake_drivers.absent.add(NIC)
    layout.claims.write_bytes(b"damaged")
    pods = [
        (make_pod(pod, name), fake_drivers.named(name)) for pod, name in (("p", "a"), ("q", "b"), ("r", "d"))
    ]

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        faults = await cache.rebuild(pods)
        assert sorted((fault.claim, fault.code) for fault in faults) == [
            ("b", "absent"),
            ("d", "NotReserved"),
        ]
        assert cache.needs_rebuild
        # A restart in between finds a record, and those of the drivers that were away are known to be out.
        again = ClaimInfoCache.open(layout, fake_drivers)
        assert [claim.ref.name for claim in again.claims() if not claim.ready] == ["b"]
        fake_drivers.absent.clear()
        fake_drivers.calls.clear()
        assert [fault.code for fault in await cache.rebuild(pods)] == ["NotReserved"]
        assert fake_drivers.calls == [("prepare", NIC, ("uid-b",))]
        assert await cache.reconcile(["p", "q"]) == ()
        assert sorted(claim.ref.name for claim in cache.claims()) == ["a", "b"]

    asyncio.run(scenario())


def test_a_rebuild_goes_on_after_a_restart(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p"]), make_claim("b", users=["q"]))
    layout.claims.write_bytes(b"damaged")
    pods = [(make_pod(uid, name), fake_drivers.named(name)) for uid, name in (("p", "a"), ("q", "b"))]

    async def scenario() -> None:
        # The agent is killed before it has prepared anything, then after the claims of one pod.
        assert ClaimInfoCache.open(layout, fake_drivers).needs_rebuild
        second = ClaimInfoCache.open(layout, fake_drivers)
        assert second.needs_rebuild
        assert await second.prepare(*pods[0]) == ()
        third = ClaimInfoCache.open(layout, fake_drivers)
        assert third.needs_rebuild
        assert [claim.ref.uid for claim in third.claims()] == ["uid-a"]
        assert await third.rebuild(pods) == ()
        fourth = ClaimInfoCache.open(layout, fake_drivers)
        assert not fourth.needs_rebuild
        assert {claim.ref.uid for claim in fourth.claims()} == {"uid-a", "uid-b"}

    asyncio.run(scenario())


def test_a_shared_claim_is_not_unprepared_before_the_rebuild(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p", "q", "gone"]))
    layout.claims.write_bytes(b"damaged")

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        # q runs, and nothing is known of it when p ends.
        assert await cache.prepare(make_pod("p", "a"), fake_drivers.named("a")) == ()
        assert await cache.unprepare("p") == ()
        assert await cache.reconcile(["q"]) == ()
        assert fake_drivers.held == {GPU: {"uid-a"}}
        assert await cache.rebuild([(make_pod("q", "a"), fake_drivers.named("a"))]) == ()
        assert await cache.reconcile(["q"]) == ()
        assert [claim.pods for claim in cache.claims()] == [{"q"}]
        assert await cache.unprepare("q") == ()
        assert not fake_drivers.held[GPU]

    asyncio.run(scenario())


def test_a_rebuild_does_not_prepare_claims_that_were_released_meanwhile(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p"]), make_claim("b", NIC, users=["q"]))
    layout.claims.write_bytes(b"damaged")
    pods = [(make_pod(pod, name), fake_drivers.named(name)) for pod, name in (("p", "a"), ("q", "b"))]

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        # p ends after the pods to rebuild were listed.
        assert await cache.prepare(*pods[0]) == ()
        assert await cache.unprepare("p") == ()
        fake_drivers.calls.clear()
        assert await cache.rebuild(pods) == ()
        assert fake_drivers.calls == [("prepare", NIC, ("uid-b",))]
        assert [claim.ref.name for claim in cache.claims()] == ["b"]

    asyncio.run(scenario())


def test_claims_of_an_absent_driver_are_unprepared_after_a_lost_checkpoint(layout: Layout) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p"]))
    fake_drivers.absent.add(GPU)
    layout.claims.write_bytes(b"damaged")

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        assert [fault.code for fault in await cache.rebuild([(make_pod("p", "a"), fake_drivers.named("a"))])]
        assert [fault.code for fault in await cache.unprepare("p")] == ["absent"], "it may hold the claim"
        fake_drivers.absent.clear()
        fake_drivers.calls.clear()
        assert await cache.unprepare("p") == ()
        assert fake_drivers.calls == [("unprepare", GPU, ("uid-a",))]

    asyncio.run(scenario())


def test_a_full_disk_is_a_fault_and_no_claim_is_prepared(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_drivers = FakeDrivers()
    fake_drivers.add(make_claim("a", users=["p"]))
    pod = make_pod("p", "a")
    full = False
    fsync = os.fsync

    def sync(file: int) -> None:
        if full:
            raise OSError(28, "No space left on device")
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync)

    async def scenario() -> None:
        nonlocal full
        cache = ClaimInfoCache.open(layout, fake_drivers)
        full = True
        (fault,) = await cache.prepare(pod, fake_drivers.named("a"))
        assert fault.code == "NotSaved"
        assert fault.message == (
            f"checkpoint ResourceClaim state: cannot write {layout.claims}: No space left on device"
        )
        assert fake_drivers.calls == []
        assert cache.claims() == ()

        def fill(step: str) -> None:
            nonlocal full
            full = step == "prepare answered"

        # The disk is full when the response arrives: the driver holds the claim, but no pod may use it.
        full, fake_drivers.hook = False, fill
        (fault,) = await cache.prepare(pod, fake_drivers.named("a"))
        assert fault.code == "NotSaved"
        assert not cache.claims()[0].ready
        full, fake_drivers.hook = False, lambda _: None
        assert await cache.prepare(pod, fake_drivers.named("a")) == ()
        assert [call[0] for call in fake_drivers.calls] == ["prepare", "prepare"]
        full = True
        (fault,) = await cache.unprepare("p")
        assert fault.code == "NotSaved"
        assert cache.claims()[0].ready
        assert len(fake_drivers.calls) == 2
        full = False
        assert await cache.unprepare("p") == ()

    asyncio.run(scenario())


def test_a_pipe_at_the_path_of_a_kubelet_checkpoint_does_not_block(layout: Layout) -> None:
    os.mkfifo(layout.kubelet_claims)
    cache = ClaimInfoCache.open(layout, FakeDrivers())
    assert cache.needs_rebuild
    (finding,) = cache.findings
    assert "not a regular file" in finding.what
