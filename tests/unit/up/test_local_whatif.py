"""What-if on a running cluster: read over its client, changed in memory only."""

from __future__ import annotations

from plimsoll.tools.whatif import Whatif
from plimsoll.up.local_cluster import LocalCluster

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, capacity: {cpu: "4", memory: 8Gi, pods: "110"}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  parallelism: 3
  template: {spec: {containers: [{name: c, image: c, resources: {requests: {cpu: "2"}}}]}}
"""


def test_whatif_on_a_running_cluster_changes_nothing() -> None:
    with LocalCluster() as cluster:
        cluster.apply(NODE)
        with cluster.whatif() as w:
            w.add(JOB)
            assert [each.node for each in w.schedule().placed] == ["n1", "n1"]
            with w.branch() as b:
                b.add_nodes(1, like="n1")
                assert b.schedule().all_placed
        assert cluster.client.list("pods", "default") == []
        assert [tree["metadata"]["name"] for tree in cluster.client.list("nodes")] == ["n1"]
        with Whatif.of_cluster(cluster.kubeconfig) as w:
            assert [each.metadata.name for each in w.cluster_state.nodes] == ["n1"]
