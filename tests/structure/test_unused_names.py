"""No name in `src` is unused, by vulture; tests, benchmarks and documented examples count as uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from vulture import Vulture  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
#: Decorators of functions that are called by name: commands, fixtures.
DECORATORS = ["@*.command", "@*.result_callback", "@pytest.fixture"]
#: Names that only code outside of this repository uses, by reason.
USED_ELSEWHERE = {
    "fields of objects on the wire": """
        pod_group image_id last_probe_time current_healthy desired_healthy expected_pods azure_file
        vsphere_volume match_label_expressions allowed_topologies node_id topology_keys self_link
        l3_cache_schema mem_bw_schema status_message claim_ref default_request max_limit_request_ratio
        fully_labeled_replicas unavailable_replicas current_number_scheduled number_misscheduled number_ready
        updated_number_scheduled number_available number_unavailable
    """,
    "names in messages of the runtime": "OciHooks CgroupsPath Rlimits",
    "attributes and methods that libraries call": """
        __cause__ __context__ __dir__ arraysize log_errors never_capture format_commands ignore_aliases
        writeable handleError pytest_configure feed_data local_settings
    """,
    "fields of nodes, compared as a whole": "kubelet_version kernel_version container_runtime_version",
    "fields of configuration files": """
        pre_enqueue pre_filter post_filter pre_score post_bind placement_generate placement_score queue_sort
        pre_bind
    """,
    "endpoints of the API": "LIMIT_RANGES",
    "used in quoted types": "OneDriver",
    "accepted for compatibility": "vmodule",
    "old public names, with a warning": "all_on picture",
}


@pytest.mark.slow
def test_every_name_is_used() -> None:
    finder = Vulture(ignore_names=" ".join(USED_ELSEWHERE.values()).split(), ignore_decorators=DECORATORS)
    finder.scavenge(
        [str(ROOT / name) for name in ("src", "tests", "bench")], exclude=["*/protocols/messages/*"]
    )
    unused = [
        f"{item.filename.relative_to(ROOT)}:{item.first_lineno}: {item.typ} {item.name}"
        for item in finder.get_unused_code(min_confidence=60)
        if item.filename.is_relative_to(ROOT / "src")
    ]
    assert unused == []
