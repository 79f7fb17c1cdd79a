"""Kinds that the server does not serve, and permissions that the scheduler's role does not have."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.apiserver.auth.users import service_account_user
from plimsoll.client import Client
from plimsoll.client.discovery import Served
from plimsoll.client.discovery import discover as discover_served
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    PODS,
    RESOURCE_CLAIMS,
    Endpoint,
)
from plimsoll.scheduler.process import informers as informers_module
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.manifests import DRIVER, claim, device_class
from tests.unit.scheduler.process.scheduler_cluster import NS, QUICK, SchedulerCluster, scheduler_cluster
from tests.waiting import until

RBAC = "rbac.authorization.k8s.io"
ROLES = Endpoint(RBAC, "v1", "clusterroles", "ClusterRole", False)
BINDINGS = Endpoint(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False)
MANIFEST = Path(__file__).parents[4] / "deploy/manifests/scheduler/clusterrole.yaml"
ALL: list[dict[str, Any]] = next(yaml.safe_load_all(MANIFEST.read_text()))["rules"]


def without(*resources: str) -> list[dict[str, Any]]:
    """Return the rules of the manifests without some resources."""
    rules = [{**rule, "resources": [r for r in rule["resources"] if r not in resources]} for rule in ALL]
    return [rule for rule in rules if rule["resources"]]


async def give(row: SchedulerCluster, rules: list[dict[str, Any]]) -> None:
    """Give the service account of the scheduler these rules, instead of those that it has."""
    with suppress(Exception):
        await row.admin.delete(ROLES, "scheduler")
    await row.admin.create(ROLES, {"metadata": {"name": "scheduler"}, "rules": rules})


async def start(row: SchedulerCluster, rules: list[dict[str, Any]]) -> SchedulerProcess:
    """Start a scheduler as a service account with these rules."""
    await give(row, rules)
    binding = {
        "metadata": {"name": "scheduler"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "scheduler"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": NS}],
    }
    await row.admin.create(BINDINGS, binding)
    process = SchedulerProcess(row.server.client(service_account_user(NS, "s")), QUICK)
    row.follow(process)
    return process


async def furnish(row: SchedulerCluster) -> None:
    await row.node("n1")
    await row.devices("n1")
    await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
    await row.admin.create(RESOURCE_CLAIMS, claim("c", DRIVER), NS)


async def test_pods_of_features_without_permission_wait_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await start(row, without("podgroups", "devicetaintrules", "services"))
        await process.ready(60)
        assert process.context.informers.sync_problem() == ""
        await row.pod("plain")
        await row.bound("plain")
        await row.pod("grouped", schedulingGroup={"podGroupName": "g"})
        await row.pod("claiming", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
        for name, message in (
            ("grouped", "the scheduler has no permission to list PodGroups"),
            ("claiming", "the scheduler has no permission to list DeviceTaintRules"),
        ):
            assert message in (await row.condition_of(name))["message"]
        errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert sorted(errors) == [
            "no permission to list devicetaintrules.resource.k8s.io: pods with claims that need devices "
            "wait; add to the role: {apiGroups: [resource.k8s.io], resources: [devicetaintrules], "
            "verbs: [get, list, watch]}, or disable the feature gate DRADeviceTaintRules",
            "no permission to list podgroups.scheduling.k8s.io: pods of PodGroups wait; add to the role: "
            "{apiGroups: [scheduling.k8s.io], resources: [podgroups], verbs: [get, list, watch]}, "
            "or disable the feature gate GenericWorkload",
            "no permission to list services: pods are not spread by the owners that select them; "
            "add to the role: "
            '{apiGroups: [""], resources: [services], verbs: [get, list, watch]}',
        ]
        await give(row, ALL)
        await row.bound("claiming")

        async def reason() -> str:
            tree = await row.admin.get(PODS, "grouped", NS)
            return str(tree["status"]["conditions"][0]["message"])

        await until(reason, lambda message: 'pod group "g" to appear' in message)


async def test_nothing_is_scheduled_without_the_claims(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await start(row, without("resourceclaims"))
        await row.pod("p")
        rule = "{apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get, list, watch]}"
        informers = process.context.informers
        expected = f"not synced: resourceclaims (no permission; add to the role: {rule})"
        await until(lambda: informers.sync_problem() == expected, context=informers.sync_problem)
        (error,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert error.startswith("no permission to list resourceclaims.resource.k8s.io: nothing is scheduled;")

        async def events() -> list[bytes]:
            return [
                e for e in (await row.admin.list(EVENTS, "kube-system")).items if b"MissingPermission" in e
            ]

        assert await until(events)
        assert not informers.synced
        assert "nodeName" not in (await row.admin.get(PODS, "p", NS))["spec"]
        await give(row, ALL)
        await row.bound("p")
        assert informers.sync_problem() == ""


async def test_missing_permission_to_write_events_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await start(row, without("events"))
        for number in range(3):
            await row.pod(f"p{number}")
            await row.bound(f"p{number}")
        await until(lambda: process.recorder.failed >= 3)
        (error,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert error == (
            "no permission to write events: pods have none; add to the role: "
            "{apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch, update]}"
        )


async def test_kinds_are_watched_when_they_are_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing = {"podgroups", "devicetaintrules"}

    async def discover(client: Client) -> list[Served]:
        return [each for each in await discover_served(client) if each.endpoint.plural not in missing]

    monkeypatch.setattr(informers_module, "discover", discover)
    monkeypatch.setattr(informers_module, "REDISCOVERY_SECONDS", 0.05)
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await start(row, without(*missing))
        await process.ready(60)
        await row.pod("claiming", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
        await row.bound("claiming")
        watched = {each.endpoint.plural for each in process.context.informers.informers}
        assert not watched & missing
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
        await give(row, ALL)
        missing.clear()
        informers = process.context.informers
        await until(lambda: not informers.unserved)
        await until(lambda: all(each.listings for each in informers.informers))
        assert {each.endpoint.plural for each in informers.informers} > {"podgroups", "devicetaintrules"}
