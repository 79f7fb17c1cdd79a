"""Files of a driver: CDI files, the checkpoint of prepared claims, device metadata."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.common.checkpoint import RecordFile, read_boot_id
from plimsoll.drivers.plugin import ClaimError, ClaimRef, InjectedDevice, PreparedDevice
from plimsoll.drivers.plugin.claim_handler import acquire_lock
from plimsoll.drivers.plugin.metadata import MetadataFiles, build_metadata, container_path
from plimsoll.drivers.plugin.prepared_claim_store import (
    PreparedClaimRecord,
    PreparedClaimStore,
    build_record,
)
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import CdiCache, Edits, read_spec
from tests.coroutines import run_by
from tests.directories import short_directory
from tests.sizes import examples
from tests.unit.drivers.plugin.fixtures import DRIVER, NODE, Widgets, run
from tests.unit.drivers.plugin.node_fixture import node_fixture

REF = ClaimRef("ns", "claim", "11111111-2222-3333-4444-555555555555")
OTHER = ClaimRef("ns", "other", "22222222-2222-3333-4444-555555555555")


def store(tmp_path: Path, boot: str = "today") -> PreparedClaimStore:
    found = PreparedClaimStore(DRIVER, tmp_path / "plugin", tmp_path / "cdi", boot=boot)
    assert found.open() == ()
    return found


def injected(device: str = "w0", **more: Any) -> InjectedDevice:
    return InjectedDevice(["it"], NODE, device, **{"env": {"WIDGET": device}, **more})


# -- hands


def test_injected_devices_become_cdi_edits(tmp_path: Path) -> None:
    each = [
        injected("w0", mounts=[("/dev/w0", "/widget")], device_nodes=["/dev/w0"]),
        injected(
            "w1",
            mounts=[{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
            device_nodes=[{"path": "/dev/w1", "hostPath": "/dev/real", "permissions": "rw"}],
        ),
        InjectedDevice((), NODE, "silent"),
    ]
    claim = store(tmp_path).add(REF, each)
    assert isinstance(claim, PreparedClaimRecord)
    assert [device.cdi for device in claim.devices] == [
        (f"{DRIVER}/claim={REF.uid}-0",),
        (f"{DRIVER}/claim={REF.uid}-1",),
        (),
    ]
    directories = CdiCache([tmp_path / "cdi"])
    assert directories.faults() == ()
    edits = directories.edits([name for device in claim.devices for name in device.cdi])
    assert isinstance(edits, Edits)
    assert edits.env == ("WIDGET=w0", "WIDGET=w1")
    assert [(mount.host_path, mount.container_path, mount.options) for mount in edits.mounts] == [
        ("/dev/w0", "/widget", ("rbind", "rw")),
        ("/a", "/b", ("ro",)),
    ]
    assert [(node.path, node.host_path) for node in edits.device_nodes] == [
        ("/dev/w0", ""),
        ("/dev/w1", "/dev/real"),
    ]


def test_prepared_claims_are_checkpointed(tmp_path: Path) -> None:
    metadata = {"attributes": {"size": {"int": 1}}}
    first = store(tmp_path)
    claim = first.add(REF, [injected(share_id="s", metadata=metadata)])
    first.add(OTHER, [InjectedDevice((), NODE, "w1")])
    again = store(tmp_path)
    assert again.claims == first.claims
    assert again.get(REF.uid) == claim
    assert again.claims[REF.uid].devices[0].metadata == metadata
    assert again.remove(REF.uid) is None
    assert list(store(tmp_path).claims) == [OTHER.uid]
    assert again.get(REF.uid) is None
    assert not list((tmp_path / "cdi").iterdir())


def test_after_a_reboot_claims_are_prepared_again(tmp_path: Path) -> None:
    store(tmp_path).add(REF, [injected()])
    (path,) = (tmp_path / "cdi").iterdir()
    path.unlink()
    later = store(tmp_path, boot="tomorrow")
    assert later.get(REF.uid) is None
    assert not path.exists()
    later.add(REF, [injected("w1")])
    assert "WIDGET=w1" in path.read_text()
    assert isinstance(later.get(REF.uid), PreparedClaimRecord)


def test_a_failed_file_write_leaves_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("in the way")
    found = store(tmp_path)
    refusal = found.add(REF, [injected()])
    assert isinstance(refusal, ClaimError)
    assert refusal.code == "CdiNotWritten"
    assert not found.claims
    assert not store(tmp_path).claims
    (tmp_path / "cdi").unlink()
    assert isinstance(found.add(REF, [injected()]), PreparedClaimRecord)


def test_a_refused_unprepare_leaves_the_cdi_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = store(tmp_path)
    claim = found.add(REF, [injected()])
    assert isinstance(claim, PreparedClaimRecord)
    (file,) = (tmp_path / "cdi").iterdir()
    before = file.read_bytes()

    def be_full(*_: object) -> None:
        raise StoreError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RecordFile, "save", be_full)
        refusal = found.remove(REF.uid)
    assert isinstance(refusal, ClaimError)
    assert refusal.code == "NotSaved"
    assert file.read_bytes() == before
    assert found.get(REF.uid) == claim
    assert found.remove(REF.uid) is None
    assert not file.exists()
    assert not store(tmp_path).claims


def test_a_checkpoint_that_cannot_be_written_fails_the_claim(tmp_path: Path) -> None:
    found = store(tmp_path)
    (tmp_path / "plugin").write_text("in the way")
    refusal = found.add(REF, [injected()])
    assert isinstance(refusal, ClaimError)
    assert refusal.code == "NotSaved"
    assert not (tmp_path / "cdi").exists()


def test_a_malformed_checkpoint_is_quarantined(tmp_path: Path) -> None:
    store(tmp_path).add(REF, [injected()])
    record = tmp_path / "plugin" / "handed.json"
    for damage in (b"", b"nonsense", record.read_bytes().replace(b"w0", b"w9")):
        record.write_bytes(damage)
        found = PreparedClaimStore(DRIVER, tmp_path / "plugin", tmp_path / "cdi", boot="today")
        (finding,) = found.open()
        assert "cannot be used" in finding.what
        assert not found.claims
        assert found.remove(REF.uid) is None  # the file is found by its name
    assert len(list((tmp_path / "plugin" / "quarantine").iterdir())) == 3
    assert not list((tmp_path / "cdi").iterdir())


@settings(max_examples=examples(30), deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2),
    st.lists(st.text(max_size=3) | st.dictionaries(st.sampled_from(["path", "x"]), st.text()), max_size=2),
)
def test_any_injected_device_gives_a_record_or_an_error(env: Any, mounts: Any, nodes: Any) -> None:
    claim = build_record(DRIVER, REF, [InjectedDevice((), NODE, "w0", env, mounts, nodes)], "")
    assert isinstance(claim, (PreparedClaimRecord, ClaimError))


def test_the_boot_id(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "absent") == ""
    (tmp_path / "id").write_text("abc\n")
    assert read_boot_id(tmp_path / "id") == "abc"


# -- metadata

ATTRIBUTES = {"attributes": {"model": {"string": "x"}}}


def device(name: str, *requests: str, **more: Any) -> PreparedDevice:
    return PreparedDevice(NODE, name, requests, **more)


def test_metadata_files_of_containers(tmp_path: Path) -> None:
    files = MetadataFiles(DRIVER, tmp_path / "plugin", tmp_path / "cdi")
    network = {"networkData": {"interfaceName": "eth1"}}
    devices = [
        device("w0", "a/sub", metadata=ATTRIBUTES),
        device("w1", "a/sub", "b"),
        device("w2", "b", metadata=network),
    ]
    names = files.write(REF, devices)
    assert names == {
        "a": f"{DRIVER}/metadata={REF.uid}_a",
        "b": f"{DRIVER}/metadata={REF.uid}_b",
    }
    path = tmp_path / "plugin" / "dra-device-metadata" / "ns_claim" / "a" / "metadata.json"
    assert json.loads(path.read_text()) == {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "claim", "namespace": "ns", "uid": REF.uid, "generation": 1},
        "requests": [
            {
                "name": "a/sub",
                "devices": [
                    {"driver": DRIVER, "pool": NODE, "name": "w0", **ATTRIBUTES},
                    {"driver": DRIVER, "pool": NODE, "name": "w1"},
                ],
            }
        ],
    }
    assert path.stat().st_mode & 0o777 == 0o644
    spec = read_spec(tmp_path / "cdi" / f"{DRIVER}_metadata_{REF.uid}_b.json")
    edits = CdiCache([tmp_path / "cdi"]).edits([names["b"]])
    assert isinstance(edits, Edits)
    (mount,) = edits.mounts
    assert mount.options == ("ro", "bind")
    assert mount.container_path == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/claim/b/"
        "widgets.example.com-metadata.json"
    )
    assert Path(mount.host_path).exists()
    assert getattr(spec, "version", "") == "0.5.0"
    assert files.remove(REF) is None
    assert not list((tmp_path / "cdi").iterdir())
    assert not path.parent.parent.exists()
    assert files.remove(REF) is None


def test_no_files_for_devices_without_metadata(tmp_path: Path) -> None:
    files = MetadataFiles(DRIVER, tmp_path / "plugin", tmp_path / "cdi")
    assert files.write(REF, [device("w0", "a")]) == {}
    assert list(tmp_path.iterdir()) == []


def test_template_claims_are_identified_by_their_name_in_the_pod() -> None:
    assert container_path("d", REF, "a", "widget") == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/widget/a/d-metadata.json"
    )
    tree = build_metadata("d", REF, "a", [], pod_claim="widget", generation=4)
    assert tree["podClaimName"] == "widget"
    assert tree["metadata"]["generation"] == 4


def test_metadata_can_be_updated(tmp_path: Path) -> None:
    files = MetadataFiles(DRIVER, tmp_path / "plugin", tmp_path / "cdi")
    files.write(REF, [device("w0", "a/sub", metadata={})], "widget")
    network = {"networkData": {"ips": ["10.0.0.1/24"]}}
    assert files.update(REF, "a/sub", [device("w0", metadata=network)]) is None
    path = tmp_path / "plugin" / "dra-device-metadata" / "ns_claim" / "a" / "metadata.json"
    tree = json.loads(path.read_text())
    assert tree["metadata"]["generation"] == 2
    assert tree["podClaimName"] == "widget"
    assert tree["requests"][0]["devices"][0]["networkData"] == network["networkData"]
    missing = files.update(REF, "b", [])
    assert str(missing) == 'request "b" not found in prepared claim ns/claim'
    path.write_text("nonsense")
    assert "decode existing metadata" in str(files.update(REF, "a", []))


def test_cdi_files_of_metadata_are_restored(tmp_path: Path) -> None:
    files = MetadataFiles(DRIVER, tmp_path / "plugin", tmp_path / "cdi")
    for ref in (REF, OTHER):
        files.write(ref, [device("w0", "a/sub", metadata=ATTRIBUTES)], "widget")
    (mine, other) = sorted((tmp_path / "cdi").iterdir())
    before = mine.read_bytes()
    mine.unlink()
    other.unlink()
    assert files.restore({REF.uid}) == []
    assert [(path, path.read_bytes()) for path in (tmp_path / "cdi").iterdir()] == [(mine, before)]
    odd = tmp_path / "plugin" / "dra-device-metadata" / "ns_claim" / "a" / "metadata.json"
    odd.write_text("{")
    mine.unlink()
    assert "decode existing metadata" in str(files.restore({REF.uid})[0])
    assert files.remove(REF) is None
    assert files.restore({REF.uid}) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "remove", "lose", "damage", "replace"]),
            st.sampled_from([REF, OTHER]),
            st.sampled_from(["a", "b/sub"]),
        ),
        max_size=8,
    )
)
@settings(max_examples=examples(30), deadline=None)
def test_restoring_reads_only_what_has_changed(acts: list[tuple[str, ClaimRef, str]]) -> None:
    """A process that has restored before restores what a new one does."""
    with short_directory() as place:
        files = MetadataFiles(DRIVER, place / "plugin", place / "cdi")
        (place / "cdi").mkdir()
        uids = {REF.uid: REF, OTHER.uid: OTHER}
        for act, ref, request in acts:
            path = place / "plugin" / "dra-device-metadata" / f"{ref.namespace}_{ref.name}"
            path = path / request.partition("/")[0] / "metadata.json"
            if act == "replace":  # another claim of the same name
                files.remove(ref)
                ref = replace(ref, uid=f"9{ref.uid[1:]}")
                uids[ref.uid] = ref
            if act in ("write", "replace"):
                files.write(ref, [device("w0", request, metadata=ATTRIBUTES)], "widget")
            elif act == "remove":
                files.remove(ref)
            elif act == "damage" and path.exists():
                path.write_text("{")
            for lost in list((place / "cdi").iterdir()) if act in ("lose", "damage") else ():
                if ref.uid[1:] in lost.name:  # also those of a claim that replaced it
                    lost.unlink()
            kept = {each.name: each.read_bytes() for each in (place / "cdi").iterdir()}
            errors = files.restore(uids)
            restored = {each.name: each.read_bytes() for each in (place / "cdi").iterdir()}
            for each in (place / "cdi").iterdir():
                if each.name not in kept:
                    each.unlink()
            assert MetadataFiles(DRIVER, place / "plugin", place / "cdi").restore(uids) == errors
            assert {each.name: each.read_bytes() for each in (place / "cdi").iterdir()} == restored


@run_by(run)
async def test_metadata_reaches_the_first_device_of_each_request() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        driver.response = lambda claim: [
            InjectedDevice(["it"], NODE, "w0", env={"A": "b"}, metadata=ATTRIBUTES),
            InjectedDevice(["it"], NODE, "w1"),
        ]
        async with node.running(driver) as server:
            names = {"resource.kubernetes.io/pod-claim-name": "widget"}
            ref = await node.cluster.add_claim("c", "w0", annotations=names)
            ((first, second),) = await node.prepare(ref)
            assert first.cdi == (f"{DRIVER}/claim={ref.uid}-0", f"{DRIVER}/metadata={ref.uid}_it")
            assert second.cdi == ()
            edits = CdiCache([node.cdi]).edits(first.cdi)
            assert isinstance(edits, Edits)
            assert "/resourceclaimtemplates/widget/it/" in edits.mounts[0].container_path
            assert await node.prepare(ref) == [(first, second)]
            changed = replace(first, metadata={"attributes": {"model": {"string": "y"}}})
            assert await server.update_metadata(ref, "it", [changed]) is None
            assert '"y"' in Path(edits.mounts[0].host_path).read_text()
            assert await node.unprepare(ref) == [None]
            assert not list(node.cdi.iterdir())


@run_by(run)
async def test_metadata_that_cannot_be_written_fails_the_claim() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        driver.response = lambda claim: [PreparedDevice(NODE, "w0", ("it",), metadata=ATTRIBUTES)]
        async with node.running(driver) as server:
            (server.plugin_dir / "dra-device-metadata").write_text("in the way")
            ref = await node.cluster.add_claim("c", "w0")
            (response,) = await node.prepare(ref)
            assert response.message.startswith("write metadata file: ")
            (server.plugin_dir / "dra-device-metadata").unlink()
            assert len((await node.prepare(ref))[0]) == 1
            driver.response = lambda claim: [
                PreparedDevice(NODE, "w0", ("it",), metadata={"attributes": object()})
            ]
            (response,) = await node.prepare(ref)
            assert response.message.startswith("write metadata file: ")


@run_by(run)
async def test_the_lock_excludes_other_processes() -> None:
    with short_directory() as directory:
        first = await acquire_lock(directory / "serialize.lock")
        second = asyncio.create_task(acquire_lock(directory / "serialize.lock"))
        await asyncio.sleep(0.1)
        assert not second.done()
        os.close(first)
        os.close(await second)
