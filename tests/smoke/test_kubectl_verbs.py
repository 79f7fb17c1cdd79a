"""Every kubectl verb with `plimsoll up`: it works, or is refused in one clear line, as docs/up.md has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.directories import short_directory
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.kubectl_verbs import HERE, OBJECTS, VERBS, Verb, format_table
from tests.smoke.up_process import Up

PAGE = Path(__file__).parents[2] / "docs" / "up.md"


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    if not find_kubectl():
        pytest.skip("no kubectl: set KUBEBUILDER_ASSETS to a directory with one, or install it in the PATH")
    with short_directory() as directory:
        up = Up(directory, "--name", HERE, "--nodes", "1", "--no-driver")
        up.start()
        try:
            admin = Kubectl(find_kubectl(), up.data / "kubeconfig", directory)
            admin("create", "namespace", "verbs")
            own = admin.within("verbs")
            own("apply", "-f", "-", given=OBJECTS)
            yield own
        finally:
            up.stop()
        assert "Traceback" not in up.text()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name.split(" (")[0])
def test_verb(kubectl: Kubectl, verb: Verb) -> None:
    for app in ("web", "sim"):
        kubectl("rollout", "status", f"deployment/{app}", "--timeout=60s")
    verb.check(kubectl)


def test_the_page_lists_every_verb() -> None:
    section = PAGE.read_text().partition("\n## kubectl\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert rows == format_table()
