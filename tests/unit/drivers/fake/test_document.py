"""Statements of docs/drivers.md about device files."""

from __future__ import annotations

import re
from pathlib import Path

from plimsoll.api.config import config_fields, is_config
from plimsoll.common.yaml import load_documents
from plimsoll.drivers.fake import device_file, fault_injection, plan, values
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
    assert [each.name for each in plans] == ["gpu.example.com", "nic.example.com", "accelerator.example.com"]
    for each in plans:
        assert check_plan(each) == ()
    assert "gpu-0-1g-10gb-3" in make_devices(plans[0], "n").devices


def test_the_control_file_can_be_parsed() -> None:
    ((_, tree),) = load_documents(blocks()[1])
    control = parse_control(tree)
    assert control.faults("gpu.example.com", "worker-1").absent == ("gpu-7", "gpu-7-*")
    assert control.faults("gpu.example.com", "worker-2").absent is None


def test_every_field_is_in_the_document() -> None:
    """The fields of all configuration types."""
    section = SECTION.search(DOCUMENT.read_text())
    assert section is not None
    own = [each for module in (plan, values, device_file, fault_injection) for each in vars(module).values()]
    kinds = [each for each in own if is_config(each) and each.__module__.startswith(plan.__package__)]
    names = {name for kind in kinds for name in config_fields(kind)}
    assert {"drivers", "allowMultipleAllocations", "fileMode", "validRange", "failFirst"} <= names
    missing = {name for name in names if not re.search(rf"\b{name}\b", section[1])}
    assert missing == {"apiVersion"}
