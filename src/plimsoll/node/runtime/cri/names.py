"""Labels and annotations of sandboxes and containers: the kubelet's, and the owner.

NRI plugins, `crictl` and monitoring agents read the kubelet's. Several nodes can share a runtime: each lists
only what has its own owner label, and leaves the rest alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Container, Pod

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
OWNER = "plimsoll.dev/owner"

RESTART_COUNT = "io.kubernetes.container.restartCount"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"


def sandbox_labels(pod: Pod, owner: str) -> dict[str, str]:
    return {**pod.metadata.labels, **_pod_labels(pod), OWNER: owner}


def container_labels(pod: Pod, container: str, owner: str) -> dict[str, str]:
    return {**_pod_labels(pod), CONTAINER_NAME: container, OWNER: owner}


def _pod_labels(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {POD_NAME: meta.name, POD_NAMESPACE: meta.namespace, POD_UID: meta.uid}


def container_annotations(
    pod: Pod, container: Container, attempt: int, of_devices: Mapping[str, str]
) -> dict[str, str]:
    """Return the annotations of a container; those of device plugins never replace the kubelet's."""
    annotations = {
        **of_devices,
        RESTART_COUNT: str(attempt),
        MESSAGE_PATH: container.termination_message_path,
        MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.spec.termination_grace_period_seconds is not None:
        annotations[GRACE_PERIOD] = str(pod.spec.termination_grace_period_seconds)
    return annotations
