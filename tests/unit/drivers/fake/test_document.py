"""Statements of docs/drivers.md about device files."""

from __future__ import annotations

import re
from pathlib import Path

from plimsoll.common.yaml import load_documents
from plimsoll.drivers.fake.device_file import parse_text
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.drivers.fake.fault_injection import parse_control
from plimsoll.tools.device_file_check import check_plan

DOCUMENT = Path(__file__).parents[4] / "docs" / "drivers.md"
SECTION = re.compile(r"^## Devices from a file$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    section = SECTION.search(DOCUMENT.read_text())
    assert section is not None
    return YAML.findall(section[1])


def test_the_example_can_be_published() -> None:
    plans = parse_text(blocks()[0])
    assert [plan.name for plan in plans] == ["gpu.example.com", "nic.example.com", "accelerator.example.com"]
    for plan in plans:
        assert check_plan(plan) == ()
    assert "gpu-0-1g-10gb-3" in make_devices(plans[0], "n").devices


def test_the_control_file_can_be_parsed() -> None:
    ((_, tree),) = load_documents(blocks()[1])
    control = parse_control(tree)
    assert control.faults("gpu.example.com", "worker-1").absent == ("gpu-7", "gpu-7-*")
    assert control.faults("gpu.example.com", "worker-2").absent is None


def test_every_field_is_in_the_document() -> None:
    """The names that the readers take, as their errors list them."""
    section = SECTION.search(DOCUMENT.read_text())
    assert section is not None
    source = Path(__file__).parents[4] / "src" / "plimsoll" / "drivers" / "fake"
    names = set()
    for module in ("device_file", "device_shapes", "fault_injection"):
        text = (source / f"{module}.py").read_text()
        names |= set(re.findall(r'\.(?:text|flag|number|seconds|section|sections|take)\(\s*"(\w+)"', text))
        names |= set(
            re.findall(r'(?:read_strings|read_quantities|read_optional_quantity)\(\w+, "(\w+)"', text)
        )
    missing = {name for name in names if not re.search(rf"\b{name}\b", section[1])}
    assert missing == {"apiVersion"}
