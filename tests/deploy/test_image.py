"""Image in the OCI layout: digests, reproducibility, and what a container of it runs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from release.image import build_image, find_interpreter, image_config
from release.oci import write_image

from plimsoll.errors import ConfigError

ROOT = Path(__file__).parents[2]
NAME = "registry.example.com/plimsoll:0.1.0"


def tree(directory: Path, order: int = 1) -> Path:
    """A directory with a program, a link, a directory for temporary files and a long name."""
    names = ["bin/program", "lib/a.txt", f"lib/{'long/' * 30}name.txt"][::order]
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (directory / "bin" / "program").chmod(0o700)
    (directory / "bin" / "alias").symlink_to("program")
    (directory / "tmp").mkdir()
    (directory / "tmp").chmod(0o1777)
    return directory


def blobs(image: Path) -> dict[str, bytes]:
    with tarfile.open(image) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def resolve(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, whose digest and size must be right."""
    content = files["blobs/" + descriptor["digest"].replace(":", "/")]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def read_image(image: Path) -> tuple[dict[str, Any], list[tarfile.TarFile]]:
    """The configuration and the layers of an image, after every reference has been checked."""
    files = blobs(image)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files["index.json"])
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    (listed,) = index["manifests"]
    manifest = json.loads(resolve(files, listed))
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == listed["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    config = json.loads(resolve(files, manifest["config"]))
    assert {name: config[name] for name in ("os", "architecture")} == listed["platform"]
    layers = []
    for described, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        assert described["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
        plain = gzip.decompress(resolve(files, described))
        assert diff == f"sha256:{hashlib.sha256(plain).hexdigest()}"
        layers.append(tarfile.open(fileobj=io.BytesIO(plain)))  # noqa: SIM115 - in memory
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == [listed["annotations"]["io.containerd.image.name"]]
    assert {docker["Config"], *docker["Layers"]} <= set(files)
    assert len(files) == 3 + 2 + len(layers)
    return config, layers


def test_every_digest_and_size_is_right(tmp_path: Path) -> None:
    directories = [tree(tmp_path / name) for name in ("one", "two")]
    (directories[1] / "more").write_text("more")
    write_image(tmp_path / "image.tar", NAME, directories, image_config(with_certificates=True))
    config, (first, second) = read_image(tmp_path / "image.tar")
    assert config["config"]["Entrypoint"] == ["plimsoll"]
    assert "more" in second.getnames()
    members = {member.name: member for member in first.getmembers()}
    assert members["bin/program"].mode == 0o755
    assert members["bin/alias"].linkname == "program"
    assert members["tmp"].mode == 0o1777
    assert members[f"lib/{'long/' * 30}name.txt"].size == len(f"lib/{'long/' * 30}name.txt")
    assert {(member.uid, member.gid, member.mtime) for member in first.getmembers()} == {(0, 0, 0)}
    assert first.getnames() == sorted(first.getnames(), key=lambda name: name.split("/"))


def test_the_same_content_gives_the_same_image(tmp_path: Path) -> None:
    images = []
    for number, order in enumerate((1, -1)):
        directory = tree(tmp_path / f"tree-{number}", order)
        os.utime(directory / "lib" / "a.txt", (number, number))
        images.append(tmp_path / f"image-{number}.tar")
        write_image(images[-1], NAME, [directory], image_config(with_certificates=False))
    assert images[0].read_bytes() == images[1].read_bytes()


def test_the_image_runs_what_the_dockerfile_runs() -> None:
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    config = image_config(with_certificates=False)
    for word, value in (("ENTRYPOINT", config.entrypoint), ("CMD", config.command)):
        assert json.loads(re.findall(rf"(?m)^{word} (\[.*\])", dockerfile)[-1]) == list(value)
    assert re.findall(r"(?m)^USER (.*)", dockerfile) == [config.user]
    assert [f"{port}/tcp" for port in re.findall(r"(?m)^EXPOSE (.*)", dockerfile)] == list(config.ports)


def test_a_base_needs_the_same_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--base .*: no python3"):
        find_interpreter(tmp_path)
    version = f"python3.{sys.version_info.minor}"
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / version).touch()
    assert find_interpreter(tmp_path) == f"/usr/bin/{version}"


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("chroot"), reason="chroot needs root")
@pytest.mark.skipif(not shutil.which("ldd"), reason="the base is made with ldd")
def test_the_command_runs_in_the_files_of_the_image(tmp_path: Path) -> None:
    build_image(tmp_path / "image.tar", NAME, None)
    config, layers = read_image(tmp_path / "image.tar")
    root = tmp_path / "root"
    for layer in layers:
        layer.extractall(root, filter="tar")
    shutil.copy(ROOT / "examples" / "what-if" / "cluster.yaml", root / "tmp" / "cluster.yaml")
    environment = dict(entry.split("=", 1) for entry in config["config"]["Env"])
    program = f"/opt/plimsoll/bin/{config['config']['Entrypoint'][0]}"
    for words, expected in (
        ([program, "--version"], "plimsoll"),
        ([program, "top", "-f", "/tmp/cluster.yaml"], "node-1"),
        (["/dracpu-gatherinfo", "--help"], "driver cpu gatherinfo"),
    ):
        command = [str(shutil.which("chroot")), str(root), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
