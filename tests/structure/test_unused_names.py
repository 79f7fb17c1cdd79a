"""No name in `src` is unused, by vulture.

Uses are those in `src`, in `examples` and `release`, and in the code of documentation pages. Tests and
benchmarks are none: what only they need is in `tests` and `bench`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from vulture import Vulture  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
#: Decorators of functions that are called by name: commands, fixtures.
DECORATORS = ["@*.command", "@*.result_callback", "@pytest.fixture"]
DOCUMENTS = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
#: Code of a page: a Python block, or a name in backquotes with what it belongs to or its call.
CODE = re.compile(r"^```python\n(.*?)^```$|`(\w*\.\w[^`\n]*|\w+\([^`\n]*)`", re.MULTILINE | re.DOTALL)
#: Names that only code outside of this repository uses, by reason.
USED_ELSEWHERE = {
    "fields of objects on the wire": """
        pod_group image_id last_probe_time current_healthy desired_healthy expected_pods azure_file
        vsphere_volume match_label_expressions allowed_topologies node_id topology_keys self_link
        l3_cache_schema mem_bw_schema status_message claim_ref default_request max_limit_request_ratio
        fully_labeled_replicas unavailable_replicas current_number_scheduled number_misscheduled number_ready
        updated_number_scheduled number_available number_unavailable holder_identity
    """,
    "names in messages of the runtime": "OciHooks CgroupsPath Rlimits run_as_username status_reason",
    "attributes and methods that libraries call": """
        __cause__ __context__ __dir__ arraysize log_errors never_capture format_commands ignore_aliases
        writeable handleError pytest_configure feed_data local_settings __getattr__ resume_writing
    """,
    "fields of nodes and sockets, compared as a whole": """
        kubelet_version kernel_version container_runtime_version inode
    """,
    "fields of configuration files": """
        pre_enqueue pre_filter post_filter pre_score post_bind placement_generate placement_score queue_sort
        pre_bind
    """,
    "counters that are read together, by the names of their fields": """
        synchronized corrected deferred reconnected audits
    """,
    "figures of a store or a driver, served or not": "waiting_watches unprepared",
    "checks and parts of plans that the conformance vectors have": "check_requests memory_requests",
    "entry points of the package": "complete_for_kubectl",
    "endpoints of the API": "LIMIT_RANGES",
    "used in quoted types": "OneDriver",
    "accepted for compatibility": "vmodule",
}


def documented_names() -> set[str]:
    """Return the words of the code in documentation pages."""
    found = (code for page in DOCUMENTS for code in CODE.findall(page.read_text()))
    return {word for parts in found for part in parts for word in re.findall(r"\w+", part)}


@pytest.mark.slow
def test_every_name_is_used() -> None:
    known = " ".join(USED_ELSEWHERE.values()).split()
    finder = Vulture(ignore_names=known, ignore_decorators=DECORATORS)
    finder.scavenge(
        [str(ROOT / name) for name in ("src", "examples", "release")], exclude=["*/protocols/messages/*"]
    )
    documented = documented_names()
    unused = [
        f"{item.filename.relative_to(ROOT)}:{item.first_lineno}: {item.typ} {item.name}"
        for item in finder.get_unused_code(min_confidence=60)
        if item.filename.is_relative_to(ROOT / "src") and item.name not in documented
    ]
    assert unused == []
