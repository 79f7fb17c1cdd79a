"""Import contracts and purity of the core."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "plimsoll"

#: Packages whose functions depend on nothing but their arguments.
PURE = (
    "api",
    "cel",
    "ledger",
    "allocator",
    "scheduler",
    "apiserver/validation",
    "controllers/quota",
    "node/cgroup_plans",
)
#: The parts of them that do I/O.
IMPURE = ("scheduler/process",)
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
    ("cel/recursion.py", "threading"): "a thread is a fresh stack to recurse on; its caller waits for it",
}
#: Where compiled Python source is made on purpose.
MAKES_CODE = {"cel/codegen/generator.py"}


@cache
def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module that a file imports, with the line; relative imports are resolved."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write imports out in full"
            yield node.module or "", node.lineno
            if node.module == "plimsoll":
                for alias in node.names:
                    yield f"plimsoll.{alias.name}", node.lineno


def test_contracts_of_import_linter_hold() -> None:
    """The contracts are in pyproject.toml; `lint-imports` prints the import that breaks one."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=SOURCE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def is_in(path: Path, directories: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(SOURCE / directory) for directory in directories)


def is_pure(path: Path) -> bool:
    return is_in(path, PURE) and not is_in(path, IMPURE)


def test_the_core_is_pure() -> None:
    found = []
    for path in filter(is_pure, modules()):
        file = path.relative_to(SOURCE).as_posix()
        found += [
            f"{file}:{line}: the core does no I/O, {module}"
            for module, line in imports(path)
            if (root := module.split(".")[0])
            and {module, root} & IMPURE_MODULES
            and (file, root) not in HARMLESS
        ]
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            name = node.func.id
            if name in IMPURE_CALLS and not (name == "exec" and file in MAKES_CODE):
                found.append(f"{file}:{node.lineno}: the core does not call {name}()")
    assert found == []


def test_a_server_without_policies_does_not_load_cel() -> None:
    """Expressions are compiled when the first one is stored; a start does not pay for that."""
    script = (
        "import sys, plimsoll.apiserver.process, plimsoll.controllers.manager;"
        "print(*[m for m in sys.modules if m.startswith(('plimsoll.cel', 'plimsoll.allocator'))])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_every_module_has_a_docstring_and_stays_small() -> None:
    texts = {path: path.read_text() for path in modules()}
    assert [path for path, text in texts.items() if not re.match(r'"""\S', text)] == []  # parsing is slow
    assert [path for path, text in texts.items() if text.count("\n") > 600] == []


#: Predict what doubles of another scheduler or of Go's durations come to; no amount is kept in them.
DOUBLES = {"scheduler/scores/kube_balanced.py", "api/durations.py"}


def test_no_float_where_amounts_are_counted() -> None:
    """CEL has its own doubles; everything else counts in integers."""
    found = []
    for path in modules():
        file = path.relative_to(SOURCE).as_posix()
        if not is_pure(path) or is_in(path, ("cel",)) or file in DOUBLES:
            continue
        for node in ast.walk(parse(path)):
            literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float"
            divided = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
            if literal or made or divided:
                found.append(f"{file}:{getattr(node, 'lineno', 0)}: amounts are exact, no float")
    assert found == []


#: Signals that never leave the module or package that raises them.
PRIVATE_SIGNALS = {
    ("cel/overloads/fragments.py", "Unsupported"),
    ("cel/functions/urls.py", "_Malformed"),
    ("apiserver/workers/remote.py", "ObjectChangedError"),
    ("protocols/rpc_server.py", "_CallAborted"),
}


def test_exceptions_form_one_tree() -> None:
    """All exceptions that callers can get are in errors.py."""
    found = set()
    may_define = re.compile(r"^ *class \w+\([^)]*(Error|Exception)", re.MULTILINE)  # parsing is slow
    for path in modules():
        for node in ast.walk(parse(path)) if may_define.search(path.read_text()) else ():
            if isinstance(node, ast.ClassDef) and package_of(path) != "errors":
                bases = {ast.unparse(base) for base in node.bases}
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    found.add((path.relative_to(SOURCE).as_posix(), node.name))
    assert found == PRIVATE_SIGNALS
