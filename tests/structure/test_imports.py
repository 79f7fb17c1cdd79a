"""Data flows one way: which package may import which, read from the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "plimsoll"

#: Package -> the packages of ours it may import. The order is the order in which the data flows.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "api": {"errors"},
    "cel": {"api"},
    "ledger": {"api"},
    "validate": {"api", "cel", "ledger"},
    "allocate": {"api", "cel"},
    "schedule": {"api", "cel", "ledger", "allocate"},
    "cluster": {"api", "validate", "ledger"},
    "wire": set(),
    "node": {"records", "api", "ledger", "wire", "cluster"},
    "drivers": {"records", "api", "wire", "cluster"},
    "tools": {"api", "cel", "validate", "ledger", "allocate", "schedule", "cluster", "wire"},
    "run": {
        "records",
        "api",
        "cel",
        "validate",
        "ledger",
        "allocate",
        "schedule",
        "cluster",
        "wire",
        "node",
        "drivers",
        "tools",
    },
    "cli": {"run", "tools", "cluster", "api"},
}

#: The same inside `cel`, where a text becomes a tree, a checked tree, and two kinds of program.
CEL_ARROWS: dict[str, set[str]] = {
    "stack": set(),
    "syntax": set(),
    "values": {"syntax"},
    "comparison": {"syntax", "values"},
    "functions": {"syntax", "values", "comparison"},
    "static": {"syntax", "values", "functions"},
    "check": {"stack", "syntax", "static"},
    "device": {"values", "functions"},
    "exact": {"stack", "syntax", "static", "check", "values", "comparison", "functions", "device"},
    "fast": {"syntax", "check", "values", "functions", "device"},
    "selector": {"static", "check", "exact", "fast", "device"},
    "caches": {"static", "selector", "device"},
}

#: And inside `allocate`: what there is, what is asked for, the search, the reasons.
ALLOCATE_ARROWS: dict[str, set[str]] = {
    "features": set(),
    "faults": set(),
    "limits": set(),
    "state": set(),
    "devices": {"features", "faults", "state"},
    "plans": {"faults", "devices"},
    "results": {"faults", "devices", "plans"},
    "budget": {"devices", "plans", "results"},
    "search": {"faults", "limits", "devices", "plans", "budget"},
    "reasons": {"devices", "plans", "search"},
    "allocator": {
        "faults",
        "limits",
        "state",
        "devices",
        "plans",
        "results",
        "budget",
        "search",
        "reasons",
    },
}
#: And inside `cluster`: the server knows nothing of its clients, and clients work without the server (the one
#: way that leads from them to it is the client of a server in the same process).
CLUSTER_ARROWS: dict[str, set[str]] = {
    "yaml": set(),
    "yaml_plain": {"yaml"},
    "yaml_parts": {"yaml", "yaml_plain"},
    "config_tree": {"yaml"},
    "input_limits": set(),
    "archives": {"input_limits"},
    "dump": {"archives", "input_limits", "yaml", "yaml_parts"},
    "store": set(),
    "kinds": set(),
    "patch": {"kinds"},
    "server": {"kinds", "patch", "store", "yaml"},
    "client": {"server"},
    "kubeconfig_entries": {"client"},
    "kubeconfig": {"client", "kubeconfig_entries", "yaml"},
    "cache": {"client"},
    "informer": {"client", "cache"},
    "leader": {"client"},
    "controllers": {"client", "informer", "leader"},
}
#: And inside `node`: values, the rooms that each do one thing, and the agent that has them all.
NODE_ARROWS: dict[str, set[str]] = {
    "layout": set(),
    "prepared": set(),
    "resources": set(),
    "machine": set(),
    "security": set(),
    "containers": {"security"},
    "hooks": {"containers", "resources"},
    "cgroups": {"layout", "resources"},
    "claims": {"layout", "prepared"},
    "enforcement": {"resources"},
    "nri": {"containers", "hooks", "resources"},
    "plugins": {"layout", "prepared"},
    "podresources": {"prepared"},
    "presence": {"machine"},
    "pressure": {"cgroups", "containers", "machine"},
    "runtime": {"cgroups", "containers", "hooks", "layout", "resources", "security"},
    "admission": {"cgroups", "enforcement"},
    "pods": {"admission", "cgroups", "claims", "containers", "enforcement", "prepared", "security"},
    "sights": {"claims", "containers", "machine", "podresources", "prepared"},
    "slices": set(),
    "agent": {
        "admission",
        "cgroups",
        "claims",
        "containers",
        "enforcement",
        "machine",
        "nri",
        "plugins",
        "podresources",
        "pods",
        "presence",
        "pressure",
        "sights",
        "slices",
    },
}
#: And inside `schedule`: what is known, the rules, devices, scores, and the cycle that tells the story.
SCHEDULE_ARROWS: dict[str, set[str]] = {
    "holdings": set(),
    "index": set(),
    "published": set(),
    "reasons": set(),
    "settings": set(),
    "task": set(),
    "users": set(),
    "placement": {"reasons", "task"},
    "snapshot": {"holdings", "index", "placement", "published", "users"},
    "verify": {"snapshot"},
    "claims": {"reasons", "snapshot", "task"},
    "topology": {"index"},
    "answers": {"index", "snapshot"},
    "filters": {"answers", "index", "reasons", "snapshot", "task", "topology"},
    "devices": {"filters", "index", "reasons", "settings", "snapshot", "task"},
    "score": {"answers", "filters", "settings", "snapshot", "task", "topology"},
    "sieve": {"devices", "filters", "placement", "reasons", "snapshot", "task"},
    "choice": {"devices", "placement", "reasons", "settings", "sieve", "snapshot", "task"},
    "hopeless": {"index", "placement", "snapshot", "task"},
    "cycle": {
        "choice",
        "devices",
        "filters",
        "hopeless",
        "placement",
        "reasons",
        "score",
        "settings",
        "sieve",
        "snapshot",
        "task",
    },
    "preemption": {
        "claims",
        "devices",
        "filters",
        "hopeless",
        "index",
        "placement",
        "reasons",
        "settings",
        "snapshot",
        "task",
    },
    "binding": {"placement", "reasons", "snapshot"},
    "queue": {"filters", "placement", "reasons", "snapshot", "topology"},
}
#: And inside `drivers`: what drivers are made of, and drivers that know nothing of each other.
DRIVER_ARROWS: dict[str, set[str]] = {"kit": set(), "cpu": {"kit"}, "fake": {"kit"}}
#: The CPU driver: what there is, what is published and who holds it, who runs where, and the whole.
CPU_ARROWS: dict[str, set[str]] = {
    "observer": set(),
    "topology": set(),
    "assign": {"topology"},
    "settings": {"assign"},
    "claim_config": {"assign", "settings"},
    "config_file": {"assign", "settings"},
    "report": {"config_file", "settings", "topology"},
    "devices": {"assign", "settings", "topology"},
    "book": {"assign", "claim_config", "devices", "settings", "topology"},
    "claim_status": {"book", "topology"},
    "stale": {"book", "settings"},
    "pinning": {"book", "settings", "topology"},
    "leftovers": {"book", "pinning", "settings", "stale"},
    "description": {"book", "pinning", "settings"},
    "driver": {
        "book",
        "claim_status",
        "description",
        "devices",
        "leftovers",
        "observer",
        "pinning",
        "settings",
        "stale",
        "topology",
    },
}
#: And inside `tools`: what a cluster is, what is in its books, and the questions that build on that.
TOOLS_ARROWS: dict[str, set[str]] = {
    "columns": set(),
    "paint": set(),
    "views": set(),
    "switches": set(),
    "check": {"paint"},
    "convert": set(),
    "report": {"paint"},
    "select": {"columns", "paint", "views"},
    "allocation": {"check", "columns", "paint", "views"},
    "podresources": {"columns", "paint"},
    "benchmarks": {"columns", "paint"},
    "picture": set(),
    "top": {"paint", "picture", "report"},
    "explain": {"paint", "picture", "top"},
    "whatif": {"columns", "paint", "picture", "top"},
    "audit": {"columns", "paint", "picture", "top"},
    "policies": {"paint", "picture", "top"},
    "dashboard": {"audit", "explain", "picture", "top", "whatif"},
}
INSIDE = {
    "cel": CEL_ARROWS,
    "allocate": ALLOCATE_ARROWS,
    "cluster": CLUSTER_ARROWS,
    "schedule": SCHEDULE_ARROWS,
    "node": NODE_ARROWS,
    "drivers": DRIVER_ARROWS,
    "drivers/cpu": CPU_ARROWS,
    "tools": TOOLS_ARROWS,
}

#: Packages whose functions depend on nothing but their arguments.
PURE = {"api", "cel", "validate", "ledger", "allocate", "schedule"}
IMPURE_MODULES = {
    "asyncio",
    "concurrent",
    "glob",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib.request",
    "uuid",
    "zoneinfo",
}
IMPURE_CALLS = {"open", "print", "input", "exec"}
#: Uses that have no effect of their own, file by file.
HARMLESS = {
    ("cel/device.py", "sys"): "sys.intern",
    ("cel/functions/time.py", "zoneinfo"): "selectors may name time zones, which are data",
    ("cel/stack.py", "threading"): "a thread is a fresh stack to recurse on; its caller waits for it",
}
#: Where compiled Python source is made on purpose.
MAKES_CODE = {"cel/fast/generate.py"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module a file imports, with the line; relative imports are resolved."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write imports out in full"
            yield node.module or "", node.lineno
            if node.module == "plimsoll":
                for alias in node.names:
                    yield f"plimsoll.{alias.name}", node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_follow_the_arrows(path: Path) -> None:
    package = package_of(path)
    if package == "__init__":
        return
    assert package in ARROWS, f"{package} is not in the table of packages; add it with its arrows"
    allowed = ARROWS[package] | {package, "errors"}
    for module, line in imports(path):
        ours = module.split(".")[1] if module.startswith("plimsoll.") else None
        assert ours is None or ours in allowed, f"{path}:{line}: {package} may not import {module}"


@pytest.mark.parametrize(
    ("folder", "path"),
    [(folder, path) for folder in INSIDE for path in sorted((SOURCE / folder).rglob("*.py"))],
    ids=lambda value: value if isinstance(value, str) else str(value.relative_to(SOURCE)),
)
def test_imports_inside_a_package_follow_the_arrows(folder: str, path: Path) -> None:
    part = path.relative_to(SOURCE / folder).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    prefix = f"plimsoll.{folder.replace('/', '.')}."
    for module, line in imports(path):
        other = module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) else part
        allowed = INSIDE[folder][part] | {part}
        assert other in allowed, f"{path}:{line}: {part} may not import {module}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if package_of(p) in PURE], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_the_core_is_pure(path: Path) -> None:
    file = path.relative_to(SOURCE).as_posix()
    for module, line in imports(path):
        root = module.split(".")[0]
        if (file, root) in HARMLESS:
            continue
        assert not {module, root} & IMPURE_MODULES, f"{path}:{line}: the core does no I/O, {module}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            made_here = node.func.id == "exec" and file in MAKES_CODE
            assert made_here, f"{path}:{node.lineno}: the core does not call {node.func.id}()"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_it_owns_and_stays_small(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
    assert text.count("\n") <= 600, f"{path} has grown past 600 lines; split it"


#: Packages that count in whole numbers only. (CEL has doubles of its own.)
EXACT = {"api", "validate", "ledger", "allocate", "schedule"}
#: Predicts what another scheduler's doubles come to; no amount is kept in them.
DOUBLES = {"schedule/score/stock.py"}


@pytest.mark.parametrize(
    "path", [p for p in modules() if package_of(p) in EXACT], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_no_float_where_amounts_are_counted(path: Path) -> None:
    if path.relative_to(SOURCE).as_posix() in DOUBLES:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float"
        divided = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        inexact = literal or made or divided
        assert not inexact, f"{path}:{getattr(node, 'lineno', 0)}: amounts are exact, no float"


#: Signals that never leave the module or package that raises them.
PRIVATE_SIGNALS = {
    ("cel/fast/source.py", "Unsupported"),
    ("cel/functions/urls.py", "_Malformed"),
    ("cluster/server/heavy/remote.py", "ObjectChanged"),
}


def test_exceptions_form_one_tree() -> None:
    """What callers can meet is in errors.py."""
    found = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and package_of(path) != "errors":
                bases = {ast.unparse(base) for base in node.bases}
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    found.add((path.relative_to(SOURCE).as_posix(), node.name))
    assert found == PRIVATE_SIGNALS
