"""DRA metrics of the kubelet."""

from __future__ import annotations

from itertools import pairwise

import grpc
import pytest

from plimsoll.common.metrics import MetricRegistry
from plimsoll.node.plugins.metrics import BUCKETS, DraMetrics, code_name


def test_operations_and_calls_are_counted_by_their_labels() -> None:
    metrics = DraMetrics()
    metrics.operation("PrepareResources", 0.2, False)
    metrics.operation("PrepareResources", 50.0, True)
    metrics.call("gpu.example.com", "/a.B/C", grpc.StatusCode.OK, 0.05)
    lines = MetricRegistry(metrics).render().decode().splitlines()
    for line in (
        'dra_operations_duration_seconds_count{is_error="false",operation_name="PrepareResources"} 1.0',
        'dra_operations_duration_seconds_sum{is_error="true",operation_name="PrepareResources"} 50.0',
        'dra_grpc_operations_duration_seconds_count{driver_name="gpu.example.com",grpc_status_code="OK",'
        'method_name="/a.B/C"} 1.0',
    ):
        assert line in lines


def test_buckets_reach_from_a_tenth_to_forty_seconds() -> None:
    assert len(BUCKETS) == 15
    assert BUCKETS[0] == pytest.approx(0.1)
    assert BUCKETS[-1] == pytest.approx(40)
    ratios = [after / before for before, after in pairwise(BUCKETS)]
    assert ratios == pytest.approx([ratios[0]] * 14)


def test_codes_are_written_as_kubernetes_writes_them() -> None:
    names = {code_name(code) for code in grpc.StatusCode}
    assert names == {
        *("OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists"),
        *("PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange"),
        *("Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"),
    }
