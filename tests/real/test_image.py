"""Image of Plimsoll, as `make image` builds it, in containerd: it is imported, and its containers answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from release.image import build_image
from release.payload import version

from tests.directories import short_directory
from tests.real.kubelet import RealNode, cannot_run

_REASON = cannot_run()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_REASON), reason=_REASON)]
NAME = "registry.example.com/plimsoll:test"
EXAMPLE = Path(__file__).parents[2] / "examples" / "what-if" / "cluster.yaml"


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    with short_directory() as directory:
        started = RealNode(directory)
        try:
            if reason := started.start_runtime():
                pytest.skip(reason)
            build_image(directory / "plimsoll.oci.tar", NAME, None)
            started.import_image(directory / "plimsoll.oci.tar")
            yield started
        finally:
            started.stop()


def run(node: RealNode, name: str, *words: str, mount: Path | None = None) -> str:
    """Run a container of the image with this command; return its output."""
    options = ["--rm", "--snapshotter", "native", "--cgroup", f"{node.cgroups.path}/{name}"]
    if mount is not None:
        options += ["--mount", f"type=bind,src={mount},dst=/tmp/{mount.name},options=rbind:ro"]
    return node.ctr("run", *options, NAME, name, *words).stdout


def test_containerd_knows_the_image(node: RealNode) -> None:
    assert NAME in node.ctr("images", "list", "--quiet").stdout.split()


def test_a_container_runs_the_command(node: RealNode) -> None:
    assert run(node, "version", "plimsoll", "--version").split()[-1] == version()


def test_a_container_answers_about_a_mounted_dump(node: RealNode) -> None:
    output = run(node, "top", "plimsoll", "top", "nodes", "-f", f"/tmp/{EXAMPLE.name}", mount=EXAMPLE)
    assert output.splitlines()[0].split()[:2] == ["NODE", "RESOURCE"]
    assert "node-1" in output
