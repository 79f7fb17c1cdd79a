"""Required plugins."""

from __future__ import annotations

import pytest

from plimsoll.node.nri.required import ANNOTATION, required_fault

CPU = [("10", "cpu")]


@pytest.mark.parametrize(
    ("annotations", "always", "fault"),
    [
        ({}, [], None),
        ({}, ["cpu"], None),
        ({}, ["10-cpu"], None),
        ({}, ["11-cpu"], 'validation error: required plugin "11-cpu" not present'),
        ({ANNOTATION: "[ cpu ]"}, [], None),
        ({ANNOTATION: "- gpu\n- net"}, [], 'validation error: required plugins "gpu,net" not present'),
        (
            {f"{ANNOTATION}/pod": "[gpu]", ANNOTATION: "[cpu]"},
            [],
            'validation error: required plugin "gpu" not present',
        ),
        ({f"{ANNOTATION}/container.app": "[cpu]", f"{ANNOTATION}/pod": "[gpu]"}, [], None),
        ({f"{ANNOTATION}/container.other": "[gpu]"}, [], None),
        ({ANNOTATION: ""}, ["gpu"], 'validation error: required plugin "gpu" not present'),
    ],
)
def test_required_plugins_of_an_annotation(
    annotations: dict[str, str], always: list[str], fault: str | None
) -> None:
    assert required_fault(annotations, "app", always, CPU) == fault


@pytest.mark.parametrize("value", ["cpu", "{a: b}", "[1]", "[", "[" * 10_000, "- &a [*a]"])
def test_annotations_without_plugin_names(value: str) -> None:
    fault = required_fault({ANNOTATION: value}, "app", [], CPU)
    assert fault is not None
    assert fault.startswith("invalid required-plugins.noderesource.dev annotation")
