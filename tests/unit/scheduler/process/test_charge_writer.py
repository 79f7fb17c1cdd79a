"""Charges of claims on servers that reject some entries and drop some fields."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import POD_KEY, POLICIES, ClaimCharge, ResourceCharge, read_pod, read_status
from plimsoll.api.quantity import Quantity
from plimsoll.client.transport import Reply
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.charge_writer import RETRY_SECONDS, ChargeForm, ChargeWriter

FIELD = "nodeAllocatableResourceClaimStatuses"
CLAIMS = ("a", "b", "c")


def pod_tree(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    claims = [{"name": name, "resourceClaimName": name} for name in CLAIMS]
    meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], "resourceClaims": claims}}


class Server:
    """The pod of an API server, which validates charges and drops fields as its version does."""

    def __init__(self, version: str, annotations: dict[str, str] | None = None) -> None:
        self.version = version
        self.tree = pod_tree(annotations)
        self.calls = 0

    @property
    def pod(self) -> Pod:
        return codec.convert(self.tree, Pod)

    async def patch_status(self, pod: Pod, metadata: dict[str, Any], status: dict[str, Any]) -> Reply:
        self.calls += 1
        for key, value in metadata.get("annotations", {}).items():
            self.tree["metadata"]["annotations"].pop(key)
            assert value is None
        for key, value in status.items():
            if key != FIELD or self.version == "without the gate":
                continue  # an unknown or disabled field
            entries = self._keep(value or [])
            self._validate(entries)
            self.tree["status"] = {FIELD: entries}
        return Reply(200, {}, codec.encode(self.tree))

    def _keep(self, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        known = {"resourceClaimName", "containers"}
        if self.version != "1.37":
            known |= {"resources"}
        if self.version in ("1.37", "embedded"):
            known |= {"mapping", "overhead"}
        if self.version == "embedded":
            known |= {"accountingPolicies", "drawn"}
        kept = [{key: value for key, value in entry.items() if key in known} for entry in entries]
        for entry in kept if self.version == "1.37" else ():
            for item in entry.get("mapping", ()):
                item.pop("accountingPolicy", None)
                item.pop("drawn", None)
        return kept

    def _validate(self, entries: Sequence[dict[str, Any]]) -> None:
        if self.version != "1.36":
            return
        wrong = []
        for place, entry in enumerate(entries):
            at = f"status.{FIELD}[{place}]"
            if not entry.get("containers"):
                wrong.append(f"{at}.containers")
            if not entry.get("resources"):
                wrong.append(f"{at}.resources")
            names = entry.get("resources", {})
            wrong += [f"{at}.resources[{name}]" for name in names if name == "ephemeral-storage"]
        if wrong:
            causes = [{"reason": "FieldValueInvalid", "field": field} for field in wrong]
            raise ApiError(422, "Invalid", f"invalid: {wrong}", {"causes": causes})

    def bind(self, writer: ChargeWriter, entries: Sequence[ClaimCharge], pod: Pod) -> Pod:
        self.tree["metadata"]["annotations"].update(writer.annotate_binding(pod, entries))
        return self.pod


def write(server: Server, writer: ChargeWriter, *entries: ClaimCharge) -> Pod:
    return server.bind(writer, entries, asyncio.run(writer.write(server.pod, entries)))


def charge(claim: str = "a", *containers: str, **resources: str) -> ClaimCharge:
    amounts = {
        name.replace("_", "-"): ResourceCharge(Quantity.parse(text)) for name, text in resources.items()
    }
    return ClaimCharge(claim, containers, amounts)


def written(pod: Pod) -> dict[str, set[str]]:
    """Return the resources in the status of a pod, by claim."""
    return {each.claim: set(each.resources) for each in read_status(pod.status)}


PLAIN = charge("a", "main", cpu="2")
UNREFERENCED = charge("b", cpu="4")
MIXED = charge("c", "main", cpu="1", ephemeral_storage="1Gi")


def test_ordinary_charges_are_written_to_the_status_only() -> None:
    for version in ("1.36", "1.37", "embedded"):
        server = Server(version)
        pod = write(server, ChargeWriter(ChargeForm.AUTO, server.patch_status), PLAIN)
        assert read_status(pod.status) == (PLAIN,)
        assert POD_KEY not in pod.metadata.annotations


def test_the_newest_form_is_preferred_for_nodes_that_read_it() -> None:
    for version, newest in (("1.36", False), ("1.37", True), ("embedded", True)):
        server = Server(version)
        writer = ChargeWriter(ChargeForm.AUTO, server.patch_status)
        for _ in range(2):
            pod = asyncio.run(writer.write(server.pod, (PLAIN,), newest_first=True))
            assert read_status(pod.status) == (PLAIN,)
            (entry,) = pod.status.node_allocatable_resource_claim_statuses
            assert bool(entry.mapping) == newest
        assert server.calls == (2 if newest else 3), "a dropped form is not tried again at once"


def test_an_unreferenced_claim_is_charged_in_the_annotation() -> None:
    server = Server("1.36")
    pod = write(server, ChargeWriter(ChargeForm.AUTO, server.patch_status), PLAIN, UNREFERENCED)
    assert written(pod) == {"a": {"cpu"}}, "the kubelet sees the others"
    assert read_pod(pod) == (PLAIN, UNREFERENCED)


def test_one_pod_does_not_decide_the_form_of_the_next() -> None:
    server = Server("1.36")
    writer = ChargeWriter(ChargeForm.AUTO, server.patch_status)
    assert read_pod(write(server, writer, UNREFERENCED)) == (UNREFERENCED,)
    server.tree = pod_tree()
    pod = write(server, writer, PLAIN)
    assert read_status(pod.status) == (PLAIN,)
    assert POD_KEY not in pod.metadata.annotations


def test_a_rejected_resource_goes_to_the_annotation_and_the_others_to_the_status() -> None:
    server = Server("1.36")
    pod = write(server, ChargeWriter(ChargeForm.AUTO, server.patch_status), MIXED)
    assert written(pod) == {"c": {"cpu"}}
    assert read_pod(pod) == (MIXED,)


def test_policies_that_the_server_drops_are_read_from_the_annotation() -> None:
    policy = ResourceCharge(Quantity.parse("4"), policy="AddPerReference")
    pool = ResourceCharge(Quantity.parse("100"), policy="ConsumeFrom", drawn=Quantity.parse("30"))
    entries = (ClaimCharge("a", ("x", "y", "z"), {"cpu": policy}), ClaimCharge("b", ("x",), {"cpu": pool}))
    for version in ("1.36", "1.37", "without the gate"):
        server = Server(version)
        assert (
            read_pod(write(server, ChargeWriter(ChargeForm.AUTO, server.patch_status), *entries)) == entries
        )


def test_errors_about_other_fields_are_raised() -> None:
    async def reject(pod: Pod, metadata: dict[str, Any], status: dict[str, Any]) -> Reply:
        raise ApiError(422, "Invalid", "no", {"causes": [{"field": "status.podIPs[0]"}]})

    with pytest.raises(ApiError, match="no"):
        asyncio.run(ChargeWriter(ChargeForm.AUTO, reject).write(Server("1.36").pod, (PLAIN,)))


def test_a_dropped_form_is_not_written_for_a_minute() -> None:
    now = [0.0]
    server = Server("without the gate")
    reported: list[float] = []
    writer = ChargeWriter(
        ChargeForm.AUTO, server.patch_status, lambda: now[0], lambda: reported.append(now[0])
    )
    assert read_pod(write(server, writer, PLAIN)) == (PLAIN,)
    assert server.calls == 2  # both forms
    assert len(reported) == 2
    write(server, writer, PLAIN)
    assert server.calls == len(reported) == 2
    now[0] += RETRY_SECONDS
    server.version = "1.36"
    server.tree = pod_tree()
    pod = write(server, writer, PLAIN)
    assert server.calls == 3
    assert read_status(pod.status) == (PLAIN,)


def test_an_annotation_of_the_creator_is_overwritten() -> None:
    forged = '[{"resourceClaimName":"a","containers":["main"],"resources":{"cpu":"1m"},"drawn":{"cpu":"0"}}]'
    server = Server("1.36", {POD_KEY: forged})
    pod = write(server, ChargeWriter(ChargeForm.AUTO, server.patch_status), PLAIN)
    assert read_pod(pod) == (PLAIN,)


def test_clearing_removes_status_and_annotation() -> None:
    server = Server("1.36")
    writer = ChargeWriter(ChargeForm.AUTO, server.patch_status)
    write(server, writer, PLAIN, UNREFERENCED)
    pod = asyncio.run(writer.clear(server.pod))
    assert read_pod(pod) == ()
    assert POD_KEY not in pod.metadata.annotations


AMOUNTS = st.none() | st.integers(0, 9).map(Quantity.of)
RESOURCES = st.builds(
    ResourceCharge, AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from(["", *POLICIES]), AMOUNTS
).filter(lambda amount: amount != ResourceCharge())
CHARGES = st.builds(
    ClaimCharge,
    st.sampled_from(CLAIMS),
    st.lists(st.sampled_from(["main", "side"]), unique=True).map(tuple),
    st.dictionaries(st.sampled_from(["cpu", "ephemeral-storage", "memory"]), RESOURCES, min_size=1),
)
ENTRIES = st.lists(CHARGES, unique_by=lambda each: each.claim).map(
    lambda found: tuple(sorted(found, key=lambda each: each.claim))
)
VERSIONS = st.sampled_from(["1.36", "1.37", "embedded", "without the gate"])


@given(st.lists(ENTRIES, min_size=1, max_size=3), VERSIONS, st.sampled_from([*ChargeForm]))
def test_charges_are_read_as_they_were_written(
    pods: list[tuple[ClaimCharge, ...]], version: str, form: ChargeForm
) -> None:
    """Whatever a server rejects or drops, and whatever the pods before, nothing is lost."""
    server = Server(version)
    writer = ChargeWriter(form, server.patch_status)
    for entries in pods:
        server.tree = pod_tree()
        assert read_pod(write(server, writer, *entries)) == entries
