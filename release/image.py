"""Image of Plimsoll, built without a daemon: `python -m release.image FILE [--base DIR] [--name NAME]`.

Three layers: the base, the dependencies, and Plimsoll, so that an update of Plimsoll transfers little. The
base is the interpreter that runs this, with its standard library and the shared libraries that all of it
needs, and nothing else: no shell, no package manager. With `--base` it is a root file system in a directory,
which must have the same version of Python. `deploy/Dockerfile` builds the same on a base of a registry.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from plimsoll.errors import ConfigError
from release.oci import ImageConfig, write_image
from release.payload import Payload, dependency_files, package_files, version

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_PREFIX = "opt/python"
_SITE = "opt/plimsoll/site"
_GATHER_INFO = "dracpu-gatherinfo"
_PROGRAM = "opt/plimsoll/bin/plimsoll"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Parts of the standard library that no command uses.
_UNUSED = shutil.ignore_patterns(
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "config-*",
    "*.a",
    "_tkinter*",
    "_curses*",
    "readline*",
    "nis.*",
    "_dbm*",
    "_gdbm*",
    "_test*",
    "xx*",
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnobody:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def stage_base(root: Path, payload: Iterable[Path]) -> str:
    """Write the interpreter and all shared libraries; return the path of the interpreter in the image."""
    library = Path(os.__file__).parent
    shutil.copytree(library, root / _PREFIX / "lib" / _VERSION, ignore=_UNUSED)
    program = root / _PREFIX / "bin" / _VERSION
    program.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), program)
    for alias in ("python3", "python"):
        (program.parent / alias).symlink_to(_VERSION)
    compiled = [*(root / _PREFIX / "lib" / _VERSION / "lib-dynload").glob("*.so"), *payload]
    for path in _shared_libraries([Path(os.path.realpath(sys.executable)), *compiled]):
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)
    for name, text in _FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if Path("/", _CERTIFICATES).is_file():
        (root / _CERTIFICATES).parent.mkdir(parents=True)
        shutil.copyfile(Path("/", _CERTIFICATES), root / _CERTIFICATES)
    for name in ("dev", "proc", "sys", "run", "root", "tmp"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    _compile(root, _PREFIX)
    return f"/{_PREFIX}/bin/{_VERSION}"


def _shared_libraries(programs: list[Path]) -> set[Path]:
    """Return the absolute paths of what the loader maps for these files, those next to them excluded."""
    found: set[Path] = set()
    for program in programs:
        output = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for line in output.splitlines():
            if "not found" in line:
                raise ConfigError(f"{program}: {line.strip()}")
            found |= {Path(word) for word in line.split() if word.startswith("/")}
    return {path for path in found if "site-packages" not in path.parts}


def stage_payload(root: Path, payload: Payload) -> None:
    """Write the files of a payload, and their compiled form."""
    for name, source in payload.items():
        target = root / _SITE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    _compile(root, _SITE)


def stage_program(root: Path, interpreter: str) -> None:
    """Write the command, and the one that people run in a pod of the CPU driver."""
    for name, words in ((_PROGRAM, []), (_GATHER_INFO, ["driver", "cpu", "gatherinfo"])):
        program = root / name
        program.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"#!{interpreter}", "import sys", "", "from plimsoll.cli.main import main", "")
        program.write_text("\n".join((*lines, f"sys.argv[1:1] = {words}", "main()", "")))
        program.chmod(0o755)


def _compile(root: Path, directory: str) -> None:
    """Compile all modules, in a form that depends on nothing but them: images are read-only."""
    options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-d", f"/{directory}"]
    subprocess.run([sys.executable, "-m", "compileall", *options, str(root / directory)], check=False)


def find_interpreter(base: Path) -> str:
    """Return the path of the interpreter in a root file system; raises if it has another version."""
    for name in ("usr/local/bin", "usr/bin", "bin", "opt/python/bin"):
        if (base / name / _VERSION).exists():
            return f"/{name}/{_VERSION}"
    raise ConfigError(f"--base {base}: no {_VERSION} in it, for which the dependencies are compiled")


def image_config(with_certificates: bool) -> ImageConfig:
    """Return what a container runs by default, as in deploy/Dockerfile."""
    environment = {
        "PATH": "/opt/plimsoll/bin:/opt/python/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/{_SITE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
    }
    if with_certificates:
        environment["SSL_CERT_FILE"] = f"/{_CERTIFICATES}"
    return ImageConfig(
        ("plimsoll",),
        ("driver", "cpu"),
        environment,
        ports=("8080/tcp",),
        labels={
            "org.opencontainers.image.title": "plimsoll",
            "org.opencontainers.image.version": version(),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
    )


def build_image(path: Path, name: str, base: Path | None) -> None:
    """Stage the layers and write the image."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-image-") as scratch:
        needed, own = Path(scratch, "dependencies"), Path(scratch, "plimsoll")
        stage_payload(needed, dependency_files())
        stage_payload(own, package_files())
        if base is None:
            base = Path(scratch, "base")
            interpreter = stage_base(
                base, [found for found in dependency_files().values() if ".so" in found.name]
            )
        else:
            interpreter = find_interpreter(base)
        stage_program(own, interpreter)
        write_image(path, name, [base, needed, own], image_config((base / _CERTIFICATES).is_file()))


def main() -> None:
    """Build the image that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m release.image")
    parser.add_argument("path", type=Path, help="tar file to write")
    parser.add_argument("--base", type=Path, help="root file system [default: this Python and its libraries]")
    parser.add_argument("--name", default=f"docker.io/library/plimsoll:{version()}", help="name of the image")
    given = parser.parse_args()
    build_image(given.path, given.name, given.base)
    sys.stdout.write(f"{given.path}: {given.path.stat().st_size / 1e6:.1f} MB, {given.name}\n")


if __name__ == "__main__":
    main()
