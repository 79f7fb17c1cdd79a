"""Metrics of the CPU driver: those of the Go driver unchanged, and our own."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.drivers.cpu.process.metrics import SPECS, CpuMetrics, CpuMetricsSnapshot, descriptors

#: What the Go driver's page says before anything has happened, but for its values.
GO = """\
# HELP dra_cpu_allocated_cpus Number of CPUs currently allocated to prepared resource claims.
# TYPE dra_cpu_allocated_cpus gauge
# HELP dra_cpu_available_cpus Number of CPUs available for allocation after reserved and active claim CPUs are excluded.
# TYPE dra_cpu_available_cpus gauge
# HELP dra_cpu_reserved_cpus Number of CPUs reserved and excluded from DRA management.
# TYPE dra_cpu_reserved_cpus gauge
# HELP dra_cpu_resource_claims_active Number of resource claims currently recorded as active by the allocation store.
# TYPE dra_cpu_resource_claims_active gauge
# HELP dra_cpu_prepare_claims_total Total number of per-claim PrepareResourceClaims results.
# TYPE dra_cpu_prepare_claims_total counter
# HELP dra_cpu_unprepare_claims_total Total number of per-claim UnprepareResourceClaims results.
# TYPE dra_cpu_unprepare_claims_total counter
# HELP dra_cpu_prepare_claim_duration_seconds Duration of per-claim prepare operations in seconds.
# TYPE dra_cpu_prepare_claim_duration_seconds histogram
# HELP dra_cpu_claim_allocated_cpus Number of CPUs allocated for each newly successful claim allocation.
# TYPE dra_cpu_claim_allocated_cpus histogram
"""  # noqa: E501
STATE = CpuMetricsSnapshot(
    allocated=3,
    available=4,
    reserved=1,
    claims=2,
    shared=5,
    disputed=1,
    devices={"cpudevnuma000": (7, 4)},
    containers={"exclusive": 1, "shared": 2},
    links={"kubelet": True, "nri": False},
    events={"pin_failed": 3},
    findings={"error": 1},
    healthy=True,
)


def page(metrics: CpuMetrics) -> str:
    async def read() -> str:
        return b"".join([piece async for piece in metrics.expose()]).decode()

    return asyncio.run(read())


def test_metrics_of_the_go_driver_exist_unchanged() -> None:
    lines = page(CpuMetrics(lambda: STATE)).splitlines()
    assert [line for line in GO.splitlines() if line not in lines] == []
    for operation in ("prepare", "unprepare"):
        for result in ("success", "error", "unknown"):
            assert f'dra_cpu_{operation}_claims_total{{result="{result}"}} 0.0' in lines
    bounds = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
    assert [line for line in lines if line.startswith("dra_cpu_prepare_claim_duration_seconds_bucket")] == [
        f'dra_cpu_prepare_claim_duration_seconds_bucket{{le="{bound}"}} 0.0' for bound in bounds
    ]
    powers = [*(f"{float(1 << power)}" for power in range(11)), "+Inf"]
    assert [line for line in lines if line.startswith("dra_cpu_claim_allocated_cpus_bucket")] == [
        f'dra_cpu_claim_allocated_cpus_bucket{{le="{bound}"}} 0.0' for bound in powers
    ]


def test_counters_and_gauges() -> None:
    now = [STATE]
    metrics = CpuMetrics(lambda: now[0])
    metrics.prepared("success", 0.02)
    metrics.prepared("error", 3.0)
    metrics.prepared("nonsense", 0.0)
    metrics.assigned(4)
    metrics.released("success")
    metrics.topology_changed()
    text = page(metrics)
    for line in (
        "dra_cpu_allocated_cpus 3.0",
        "dra_cpu_available_cpus 4.0",
        "dra_cpu_reserved_cpus 1.0",
        "dra_cpu_resource_claims_active 2.0",
        'dra_cpu_prepare_claims_total{result="success"} 1.0',
        'dra_cpu_prepare_claims_total{result="error"} 1.0',
        'dra_cpu_prepare_claims_total{result="unknown"} 1.0',
        'dra_cpu_unprepare_claims_total{result="success"} 1.0',
        "dra_cpu_prepare_claim_duration_seconds_count 3.0",
        "dra_cpu_prepare_claim_duration_seconds_sum 3.02",
        'dra_cpu_claim_allocated_cpus_bucket{le="2.0"} 0.0',
        'dra_cpu_claim_allocated_cpus_bucket{le="4.0"} 1.0',
        'plimsoll_cpu_device_cpus{device="cpudevnuma000"} 7.0',
        'plimsoll_cpu_device_free_cpus{device="cpudevnuma000"} 4.0',
        'plimsoll_cpu_containers{pin="shared"} 2.0',
        'plimsoll_cpu_link_up{peer="kubelet"} 1.0',
        'plimsoll_cpu_link_up{peer="nri"} 0.0',
        'plimsoll_cpu_events_total{event="pin_failed"} 3.0',
        'plimsoll_cpu_findings{severity="error"} 1.0',
        "plimsoll_cpu_disputed_claims 1.0",
        "plimsoll_cpu_topology_changes_total 1.0",
        "plimsoll_cpu_healthy 1.0",
    ):
        assert line in text.splitlines()
    now[0] = CpuMetricsSnapshot()
    assert "dra_cpu_allocated_cpus 0.0" in page(metrics)


def test_the_metric_list_equals_the_exposed_metrics() -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(page(CpuMetrics(lambda: STATE)))
        if family.name.startswith(("dra_", "plimsoll_"))
    }
    listed = {spec.name.removesuffix("_total"): spec for spec in SPECS}
    assert set(families) == set(listed)
    for name, spec in listed.items():
        assert (families[name].type, families[name].documentation) == (spec.type, spec.help)
        labels = {label for sample in families[name].samples for label in sample.labels} - {"le"}
        assert labels == set(spec.labels)
    first = descriptors()[4]
    assert first == {
        "name": "dra_cpu_prepare_claims_total",
        "type": "counter",
        "stability": "ALPHA",
        "help": "Total number of per-claim PrepareResourceClaims results.",
        "labels": ["result"],
    }
