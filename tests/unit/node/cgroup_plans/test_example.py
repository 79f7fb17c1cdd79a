"""Worked example of docs/qos.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plimsoll.api.forms import Form
from plimsoll.api.quantity import Format, Quantity
from plimsoll.ledger.qos import qos_class
from plimsoll.node.cgroup_plans import CgroupSettings, plan_containers, plan_pod
from plimsoll.node.cgroup_plans.conversions import shares_to_weight
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge

DOCUMENT = Path(__file__).parents[4] / "docs" / "qos.md"
GIB = 1 << 30

EXAMPLE = pod(
    "p",
    container("app", limits={"cpu": "2", "memory": "2Gi"}, cpu="1", memory="1Gi"),
    init=(sidecar("proxy", limits={"cpu": "500m", "memory": "512Mi"}, cpu="500m", memory="512Mi"),),
)


def figures(form: Form, policy: str, claims_in_qos: bool) -> list[str]:
    """Return a column of the table."""
    settings = CgroupSettings(memory_capacity=64 * GIB, form=form, claims_in_qos=claims_in_qos)
    charges = [charge("cpus", "app", policy=policy, cpu="4", memory="4Gi")]
    whole = plan_pod(EXAMPLE, settings, charges)
    proxy, app = plan_containers(EXAMPLE, settings, charges)
    assert whole.memory is not None

    def memory(amount: int) -> str:
        return Quantity.of(amount, Format.BINARY_SI).canonical()

    return [
        qos_class(EXAMPLE.spec, form),
        f"{whole.cpu_shares} ({shares_to_weight(whole.cpu_shares)})",
        f"{whole.cpu_quota}",
        memory(whole.memory),
        f"{app.cpu_shares}",
        f"{app.cpu_quota}",
        memory(app.memory_limit),
        f"{app.oom_score_adj}",
        f"{proxy.cpu_quota}",
        f"{proxy.oom_score_adj}",
    ]


COLUMNS = {
    "1.36": (Form.V1_36, "", False),
    "1.37": (Form.V1_37, "", False),
    "AddPerClaim": (Form.V1_37, "AddPerClaim", True),
    "Max": (Form.V1_37, "Max", True),
    "ConsumeFrom": (Form.V1_37, "ConsumeFrom", True),
}


@pytest.mark.parametrize("title", COLUMNS)
def test_plans_equal_the_documented_table(title: str) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCUMENT.read_text().splitlines()
        if line.startswith("|")
    ]
    header = next(place for place, row in enumerate(rows) if {"1.37", "AddPerClaim"} <= set(row))
    column = rows[header].index(title)
    table = [row[column] for row in rows[header + 1 :] if not re.fullmatch(r"-+", row[0])]
    assert table[: len(figures(*COLUMNS[title]))] == figures(*COLUMNS[title])
