"""Nearest fix of a pod for devices that only some nodes have: never a machine without such devices."""

from __future__ import annotations

from plimsoll.tools.explain import explain_pod
from tests.dumps import make_cluster_state
from tests.messy_cluster import messy_cluster


def test_the_nearest_fix_is_on_a_node_with_devices_of_the_class() -> None:
    state = make_cluster_state(messy_cluster())
    pod = next(pod for pod in state.pending if pod.metadata.name.startswith("pretrain-wide-"))
    fixes = explain_pod(state, pod).as_json()["fixes"]
    assert fixes
    assert all(fix["node"] is None or fix["node"].startswith("gpu-") for fix in fixes), fixes
