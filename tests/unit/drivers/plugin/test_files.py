"""What a driver leaves on the disk: CDI files, the record of what was handed out, metadata of devices."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.drivers.plugin import ClaimRef, InjectedDevice, PreparedDevice, Refusal
from plimsoll.drivers.plugin.calls import take_lock
from plimsoll.drivers.plugin.metadata import MetadataFiles, container_path, make_metadata
from plimsoll.drivers.plugin.prepared_claim_store import (
    PreparedClaim,
    PreparedClaimStore,
    make_claim,
    read_boot_id,
)
from plimsoll.protocols.cdi import CdiFolders, Edits, read_spec
from tests.unit.drivers.plugin.test_plugin_server import place
from tests.unit.drivers.plugin.world import DRIVER, NODE, Widgets, run, short_folder

REF = ClaimRef("ns", "claim", "11111111-2222-3333-4444-555555555555")
OTHER = ClaimRef("ns", "other", "22222222-2222-3333-4444-555555555555")


def hands(tmp_path: Path, boot: str = "today") -> PreparedClaimStore:
    found = PreparedClaimStore(DRIVER, tmp_path / "plugin", tmp_path / "cdi", boot=boot)
    assert found.open() == ()
    return found


def handed(device: str = "w0", **more: Any) -> InjectedDevice:
    return InjectedDevice(["it"], NODE, device, **{"env": {"WIDGET": device}, **more})


# -- hands


def test_containers_get_what_was_handed(tmp_path: Path) -> None:
    each = [
        handed("w0", mounts=[("/dev/w0", "/widget")], device_nodes=["/dev/w0"]),
        handed(
            "w1",
            mounts=[{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
            device_nodes=[{"path": "/dev/w1", "hostPath": "/dev/real", "permissions": "rw"}],
        ),
        InjectedDevice((), NODE, "silent"),
    ]
    claim = hands(tmp_path).hand(REF, each)
    assert isinstance(claim, PreparedClaim)
    assert [device.cdi for device in claim.devices] == [
        (f"{DRIVER}/claim={REF.uid}-0",),
        (f"{DRIVER}/claim={REF.uid}-1",),
        (),
    ]
    folders = CdiFolders([tmp_path / "cdi"])
    assert folders.faults() == ()
    edits = folders.edits([name for device in claim.devices for name in device.cdi])
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


def test_what_was_handed_is_on_record(tmp_path: Path) -> None:
    metadata = {"attributes": {"size": {"int": 1}}}
    first = hands(tmp_path)
    claim = first.hand(REF, [handed(share_id="s", metadata=metadata)])
    first.hand(OTHER, [InjectedDevice((), NODE, "w1")])
    again = hands(tmp_path)
    assert again.claims == first.claims
    assert again.known(REF.uid) == claim
    assert again.claims[REF.uid].devices[0].metadata == metadata
    assert again.take_back(REF.uid) is None
    assert list(hands(tmp_path).claims) == [OTHER.uid]
    assert again.known(REF.uid) is None
    assert not list((tmp_path / "cdi").iterdir())


def test_after_a_start_of_the_machine_the_driver_is_asked_again(tmp_path: Path) -> None:
    hands(tmp_path).hand(REF, [handed()])
    (path,) = (tmp_path / "cdi").iterdir()
    path.unlink()
    later = hands(tmp_path, boot="tomorrow")
    assert later.known(REF.uid) is None
    assert not path.exists()
    later.hand(REF, [handed("w1")])
    assert "WIDGET=w1" in path.read_text()
    assert isinstance(later.known(REF.uid), PreparedClaim)


def test_a_file_that_cannot_be_written_leaves_nothing_on_record(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("in the way")
    found = hands(tmp_path)
    refusal = found.hand(REF, [handed()])
    assert isinstance(refusal, Refusal)
    assert refusal.code == "CdiNotWritten"
    assert not found.claims
    assert not hands(tmp_path).claims
    (tmp_path / "cdi").unlink()
    assert isinstance(found.hand(REF, [handed()]), PreparedClaim)


def test_a_record_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    found = hands(tmp_path)
    (tmp_path / "plugin").write_text("in the way")
    refusal = found.hand(REF, [handed()])
    assert isinstance(refusal, Refusal)
    assert refusal.code == "NotSaved"
    assert not (tmp_path / "cdi").exists()


def test_a_record_that_cannot_be_used_is_put_aside(tmp_path: Path) -> None:
    hands(tmp_path).hand(REF, [handed()])
    record = tmp_path / "plugin" / "handed.json"
    for damage in (b"", b"nonsense", record.read_bytes().replace(b"w0", b"w9")):
        record.write_bytes(damage)
        found = PreparedClaimStore(DRIVER, tmp_path / "plugin", tmp_path / "cdi", boot="today")
        (finding,) = found.open()
        assert "cannot be used" in finding.what
        assert not found.claims
        assert found.take_back(REF.uid) is None  # the file is found by its name
    assert len(list((tmp_path / "plugin" / "quarantine").iterdir())) == 3
    assert not list((tmp_path / "cdi").iterdir())


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2),
    st.lists(st.text(max_size=3) | st.dictionaries(st.sampled_from(["path", "x"]), st.text()), max_size=2),
)
def test_whatever_an_author_hands_out_is_a_claim_or_a_refusal(env: Any, mounts: Any, nodes: Any) -> None:
    claim = make_claim(DRIVER, REF, [InjectedDevice((), NODE, "w0", env, mounts, nodes)], "")
    assert isinstance(claim, (PreparedClaim, Refusal))


def test_the_machines_boot(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "absent") == ""
    (tmp_path / "id").write_text("abc\n")
    assert read_boot_id(tmp_path / "id") == "abc"


# -- metadata

ATTRIBUTES = {"attributes": {"model": {"string": "x"}}}


def device(name: str, *requests: str, **more: Any) -> PreparedDevice:
    return PreparedDevice(NODE, name, requests, **more)


def test_what_containers_read_about_their_devices(tmp_path: Path) -> None:
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
    edits = CdiFolders([tmp_path / "cdi"]).edits([names["b"]])
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


def test_claims_of_templates_are_known_by_their_name_in_the_pod() -> None:
    assert container_path("d", REF, "a", "widget") == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/widget/a/d-metadata.json"
    )
    tree = make_metadata("d", REF, "a", [], pod_claim="widget", generation=4)
    assert tree["podClaimName"] == "widget"
    assert tree["metadata"]["generation"] == 4


def test_metadata_that_changes_later(tmp_path: Path) -> None:
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


def test_cdi_files_of_metadata_come_back(tmp_path: Path) -> None:
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


def test_metadata_reaches_the_first_device_of_each_request() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            driver.answer = lambda claim: [
                InjectedDevice(["it"], NODE, "w0", env={"A": "b"}, metadata=ATTRIBUTES),
                InjectedDevice(["it"], NODE, "w1"),
            ]
            async with here.running(driver) as station:
                names = {"resource.kubernetes.io/pod-claim-name": "widget"}
                ref = await here.earth.add_claim("c", "w0", annotations=names)
                ((first, second),) = await here.prepare(ref)
                assert first.cdi == (f"{DRIVER}/claim={ref.uid}-0", f"{DRIVER}/metadata={ref.uid}_it")
                assert second.cdi == ()
                edits = CdiFolders([here.cdi]).edits(first.cdi)
                assert isinstance(edits, Edits)
                assert "/resourceclaimtemplates/widget/it/" in edits.mounts[0].container_path
                assert await here.prepare(ref) == [(first, second)]
                changed = replace(first, metadata={"attributes": {"model": {"string": "y"}}})
                assert await station.update_metadata(ref, "it", [changed]) is None
                assert '"y"' in Path(edits.mounts[0].host_path).read_text()
                assert await here.unprepare(ref) == [None]
                assert not list(here.cdi.iterdir())

    run(story)


def test_metadata_that_cannot_be_written_is_a_refusal() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            driver.answer = lambda claim: [PreparedDevice(NODE, "w0", ("it",), metadata=ATTRIBUTES)]
            async with here.running(driver) as station:
                (station.folder / "dra-device-metadata").write_text("in the way")
                ref = await here.earth.add_claim("c", "w0")
                (answer,) = await here.prepare(ref)
                assert answer.message.startswith("write metadata file: ")
                (station.folder / "dra-device-metadata").unlink()
                assert len((await here.prepare(ref))[0]) == 1
                driver.answer = lambda claim: [
                    PreparedDevice(NODE, "w0", ("it",), metadata={"attributes": object()})
                ]
                (answer,) = await here.prepare(ref)
                assert answer.message.startswith("write metadata file: ")

    run(story)


def test_the_lock_of_two_processes() -> None:
    async def story() -> None:
        with short_folder() as folder:
            first = await take_lock(folder / "serialize.lock")
            second = asyncio.create_task(take_lock(folder / "serialize.lock"))
            await asyncio.sleep(0.1)
            assert not second.done()
            os.close(first)
            os.close(await second)

    run(story)
