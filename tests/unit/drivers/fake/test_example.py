"""GPU cluster of the examples."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[4] / "examples" / "gpu_cluster.py"


def test_the_gpu_example_allocates_its_devices() -> None:
    head, *lines = list(runpy.run_path(str(EXAMPLE))["schedule_jobs"]())
    assert head.split()[:3] == ["POD", "PROFILE", "NODE"]
    rows = [line.split(maxsplit=3) for line in lines]
    given = [(node, device) for _, _, node, device in rows if node != "-"]
    assert len(set(given)) == len(given) >= 4
    assert all("cannot allocate all claims" in why for _, _, node, why in rows if node == "-")
    assert rows[-1][1:3] == ["7g.40gb", "-"]
