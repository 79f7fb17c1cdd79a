"""Plans are pure: outside its controller class, a module does no I/O and reads no clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CONTROLLERS = Path(__file__).parents[3] / "src" / "plimsoll" / "controllers"
#: Modules that all controllers share: they run plans and contain none.
SHARED = {
    "__init__",
    "action_executor",
    "bootstrap",
    "context",
    "controller",
    "manager",
    "pod_control",
    "pod_owner",
    "revision_owner",
    "shared_informers",
    "volume_directories",
    "work_queue",
}
#: Classes that execute plans, one per controller.
CONTROLLER_CLASSES = {
    "ClaimProtectionController",
    "CronJobController",
    "DaemonSetController",
    "DeploymentController",
    "DeviceTaintEvictionController",
    "DisruptionController",
    "EndpointSliceController",
    "EphemeralVolumeController",
    "GarbageCollector",
    "HostPathProvisioner",
    "JobController",
    "NamespaceController",
    "NodeLifecycleController",
    "PersistentVolumeController",
    "PodGCController",
    "PodGroupProtectionController",
    "ReplicaSetController",
    "ReplicationControllerController",
    "ResourceClaimController",
    "ResourcePoolStatusController",
    "ResourceQuotaController",
    "RootCAPublisher",
    "ServiceAccountController",
    "StatefulSetController",
    "TTLAfterFinishedController",
    "TaintEvictionController",
    "VolumeProtectionController",
}
#: Modules that plans may use: the core, actions and events as values, and the endpoints of kinds.
PURE = (
    "plimsoll.api",
    "plimsoll.allocator",
    "plimsoll.ledger",
    "plimsoll.client.endpoints",
    "plimsoll.client.event_recorder",
    "plimsoll.common.cron",
    "plimsoll.controllers.actions",
    "plimsoll.controllers.object_views",
    "plimsoll.controllers.pod_utils",
    "plimsoll.controllers.quota",
    "plimsoll.controllers.workload_views",
    "plimsoll.controllers.workloads",
)
PURE_LIBRARIES = {
    *("__future__", "bisect", "collections", "dataclasses", "datetime", "enum", "hashlib", "msgspec", "re"),
    *("typing", "zoneinfo"),
}


def modules() -> list[Path]:
    found = (path for path in CONTROLLERS.rglob("*.py") if path.stem not in SHARED)
    return [*found, *(path for path in CONTROLLERS.glob("*/controller.py"))]


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return name and module of every import outside `if TYPE_CHECKING`."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)


def is_pure(module: str, path: Path) -> bool:
    siblings = "" if path.parent == CONTROLLERS else f"plimsoll.controllers.{path.parent.name}."
    return (
        module.startswith(PURE)
        or module.split(".", maxsplit=1)[0] in PURE_LIBRARIES
        or (siblings != "" and f"{module}.".startswith(siblings))
    )


@pytest.mark.parametrize("path", sorted(modules()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_plans_are_pure(path: Path) -> None:
    tree = ast.parse(path.read_text())
    impure = {name: module for name, module in imported_names(tree) if not is_pure(module, path)}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name in CONTROLLER_CLASSES:
            continue
        for node in ast.walk(statement):
            assert not isinstance(node, ast.Import | ast.ImportFrom) or node in tree.body or impure_free(node)
            if isinstance(node, ast.Name):
                assert node.id not in impure, f"{path.name}:{node.lineno} uses {impure[node.id]}"
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"datetime.now", "datetime.utcnow", "open", "print"}
            assert not isinstance(node, ast.Await | ast.AsyncFunctionDef)


def impure_free(node: ast.Import | ast.ImportFrom) -> bool:
    """Return the imports without those for type checkers only."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("plimsoll.client.client")


def test_every_controller_class_is_known() -> None:
    """A new controller must be listed here, or its methods would have to be pure."""
    found = {
        node.name
        for path in modules()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and (
            any(getattr(item, "name", "") == "reconcile" for item in node.body)
            or node.name == "ReplicationControllerController"  # inherits it
        )
    }
    assert found == CONTROLLER_CLASSES
