"""Score of nodes that already have a pod's container images.

An image counts with its size, in proportion to the number of nodes that have it, so that pods do not gather
on the few nodes that ran them first. Init containers and image volumes count as well.

DIFF: an image counts with its size on the node itself. Upstream uses the size on the node that it observed
first, which differs only for tags that were moved (test_the_size_on_the_node_itself_counts).
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from plimsoll.api.core import Node, Pod
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile, Scoring
from plimsoll.scheduler.scores.kube_balanced import scale_sizes_float64
from plimsoll.scheduler.scores.scorer import BEST, Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_MIB = 1 << 20
#: Sums of image sizes below this score 0; above the second, times the number of containers, 100.
MIN_THRESHOLD = 23 * _MIB
MAX_CONTAINER_THRESHOLD = 1000 * _MIB


def normalize_image_name(name: str) -> str:
    """Return an image name with its tag, as nodes report it."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def image_names(pod: Pod) -> list[str]:
    """Return the images of all containers and image volumes of a pod, repeated ones included."""
    spec = pod.spec
    names = [container.image for container in (*spec.init_containers, *spec.containers)]
    for volume in spec.volumes:
        image = volume.get("image")
        if isinstance(image, dict):
            names.append(str(image.get("reference") or ""))
    return [normalize_image_name(name) for name in names]


class ImageSizes(SignatureIndex[str, np.int64]):
    """Sizes of images by name and node; 0 for nodes without the image."""

    dtype = np.int64

    def relevant(self, node: Node) -> object:
        return node.status.images

    def evaluate(self, signature: str, node: Node) -> int:
        return next((image.size_bytes for image in node.status.images if signature in image.names), 0)


class ImageLocalityScorer(Scorer):
    """Scorer of images on nodes."""

    name: ClassVar[str] = "ImageLocality"

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, sizes: list[Column]
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self._sizes = sizes

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        index = snapshot.index(ImageSizes)
        sizes = [index.column(name) for name in image_names(pod_info.pod)]
        sizes = [column for column in sizes if column.any()]
        return cls(pod_info, snapshot, settings, sizes) if sizes else None

    def scores(self, feasible: Mask) -> Column:
        spec = self.pod_info.pod.spec
        most = MAX_CONTAINER_THRESHOLD * (len(spec.init_containers) + len(spec.containers))
        total: Column = np.zeros(self.snapshot.size, dtype=np.int64)
        for sizes in self._sizes:
            total += self._scaled(sizes)
        return BEST * (np.clip(total, MIN_THRESHOLD, most) - MIN_THRESHOLD) // (most - MIN_THRESHOLD)

    def _scaled(self, sizes: Column) -> Column:
        """Return the sizes in proportion to the number of nodes that have the image."""
        having, nodes = int(np.count_nonzero(sizes)), len(self.snapshot)
        if self.settings.scoring is Scoring.STOCK:
            return scale_sizes_float64(sizes, having, nodes)
        return sizes * having // nodes
