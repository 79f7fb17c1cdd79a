"""Input files of `test_outputs.py`: small, and without times."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

_CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-1}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "110"}
  allocatable: {cpu: "8", memory: 16Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-gpu}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {big: {bool: true}}
    nodeAllocatableResources: {cpu: {mapping: {deviceMultiplier: "2"}, overhead: {perPod: 100m}}}
  - name: gpu-1
    attributes: {big: {bool: false}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-nic}
spec:
  driver: nic.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: eth1}]
"""
_CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s, namespace: %s}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.example.com, count: %d}}]}}
"""
_POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  nodeName: %s
  containers:
  - {name: main, image: example/main, resources: {requests: {cpu: "2", memory: 2Gi}, limits: {cpu: "4"}}}
  - {name: proxy, image: example/proxy, resources: {limits: {cpu: 100m, memory: 64Mi}}}
"""
_BEST_EFFORT = """
apiVersion: v1
kind: Pod
metadata: {name: batch, namespace: default, uid: u-2}
spec: {nodeName: node-1, containers: [{name: work, image: example/work}]}
"""
_WAITING = """
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop}
spec: {containers: [{name: main, image: example/main, resources: {requests: {cpu: "%s"}}}]}
"""
_WRONG = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: minus, namespace: team-a}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: gpu.example.com, count: -2}}]
    constraints: [{requests: [other], matchAttribute: numaNode}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: Not_A_Name}
spec: {selectors: [{cel: {expression: 'device.driver ='}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""
_LIMITS = """
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: shop}
spec: {limits: [{type: Container, max: {cpu: "3"}}, {type: Pod, max: {memory: 1Gi}}]}
---
"""
_BETA = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: old}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {big: {bool: true}}}}]
---
apiVersion: resource.k8s.io/v1alpha3
kind: DeviceTaintRule
metadata: {name: by-class}
spec:
  deviceSelector: {deviceClassName: gpu.example.com}
  taint: {key: broken, effect: NoExecute}
"""
#: 2 sockets of 4 cores of 2 threads.
_MACHINE = [
    {"cpu": cpu, "core": cpu % 8, "socket": cpu % 8 // 4, "numa": cpu % 8 // 4, "uncore": cpu % 8 // 4}
    for cpu in range(16)
]

_DEFRAG = (Path(__file__).parents[3] / "examples" / "defrag" / "cluster.yaml").read_text()

FILES = {
    "defrag.yaml": _DEFRAG,
    "cluster.yaml": _CLUSTER,
    "claims.yaml": "---".join(_CLAIM % row for row in (("one", "team-a", 1), ("two", "team-b", 2))),
    "pods.yaml": f"{_POD % ('db', 'shop, uid: u-1', 'node-1')}---{_BEST_EFFORT}",
    "running.yaml": "---".join(
        [_POD % ("db", "shop", "node-1"), _WAITING % ("small", "1"), _WAITING % ("big", "7")]
    ),
    "wrong.yaml": _WRONG,
    "beta.yaml": _BETA,
    "limits.yaml": _LIMITS + _POD % ("db", "shop", "node-1"),
    "machine.yaml": yaml.safe_dump(_MACHINE),
    "key": "0123456789abcdef0123456789abcdef\n",
    "short-key": "0123\n",
    "before.yaml": f"{_CLUSTER}---{_POD % ('db', 'shop, uid: u-1', 'node-1')}",
    "after.yaml": f"{_CLUSTER.replace('eth1', 'eth2')}---{_WAITING % ('small', '1')}",
}

#: What a CPU driver says of itself.
DRIVER = json.dumps(
    {
        "node": "node-1",
        "mode": "grouped",
        "groupBy": "numanode",
        "online": "0-7",
        "reserved": "0",
        "shared": "1-3",
        "devices": {"cpudevnuma000": {"cpus": "0-7", "held": "4-7"}},
        "claims": [
            {
                "uid": "11111111-2222-4333-8444-555555555555",
                "namespace": "team-a",
                "name": "pinned",
                "cpus": "4-7",
                "explain": ["4 CPUs of cpudevnuma000, packed", "a whole L3 cache: 4-7"],
            }
        ],
        "findings": [{"severity": "warning", "what": "SMT is off", "fix": ""}],
    }
).encode()
