"""ContainerConfig of a container, as the kubelet generates it. Pure.

Resources are those of the plan (`cgroup_plans`), CDI devices those of claims and device plugins; the runtime
reads the CDI files itself, and runs NRI plugins.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll.api.core import Container, Pod
from plimsoll.errors import InputError
from plimsoll.node.containers import ContainerSpec
from plimsoll.node.runtime.cri.linux_resources import container_resources
from plimsoll.node.runtime.cri.names import container_annotations, container_labels
from plimsoll.node.runtime.cri.security import ImageUser, container_security
from plimsoll.protocols.cdi import Edits
from plimsoll.protocols.messages import cri

#: By the option of a bind mount, and by the API's name.
_PROPAGATIONS = {
    "rslave": cri.PROPAGATION_HOST_TO_CONTAINER,
    "rshared": cri.PROPAGATION_BIDIRECTIONAL,
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}


def find_container(pod: Pod, name: str) -> Container | None:
    """Return a container of any kind by its name."""
    spec = pod.spec
    every = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    return next((container for container in every if container.name == name), None)


def log_path(name: str, attempt: int) -> str:
    """Return the path of a container's log in the log directory of its pod."""
    return f"{name}/{attempt}.log"


def container_config(
    pod: Pod,
    container: Container,
    spec: ContainerSpec,
    *,
    image_ref: str,
    user: ImageUser,
    owner: str,
    seccomp_root: Path,
    own_mounts: tuple[cri.Mount, ...] = (),
    target: str = "",
) -> cri.ContainerConfig:
    """Return the configuration of a container; raises InputError if it must not start.

    `own_mounts` are files of the agent: the hosts file and the termination message. A mount that the pod
    defines at the same place takes precedence. `target` is the ID of the container whose processes an
    ephemeral container shares.
    """
    mounts = [*volume_mounts(spec), *mounts_of(spec.edits)]
    places = {mount.container_path for mount in mounts}
    # Only the command replaces the entry point of the image; without it arguments are passed to that.
    words, entry = list(spec.command), len(container.command)
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=cri.ImageSpec(image=image_ref, user_specified_image=container.image),
        command=words[:entry],
        args=words[entry:],
        working_dir=spec.working_dir,
        envs=[
            cri.KeyValue(key=name, value=value.encode(errors="surrogateescape"))
            for name, value in spec.env.items()
        ],
        mounts=[*mounts, *(mount for mount in own_mounts if mount.container_path not in places)],
        devices=devices_of(spec.edits),
        labels=container_labels(pod, spec.name, owner),
        annotations=container_annotations(pod, container, spec.attempt, spec.annotations),
        log_path=log_path(spec.name, spec.attempt),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=cri.LinuxContainerConfig(
            resources=container_resources(spec.plan),
            security_context=container_security(pod, container, user, seccomp_root, target),
        ),
        CDI_devices=[cri.CDIDevice(name=name) for name in dict.fromkeys(spec.cdi)],
        stop_signal=_stop_signal(container),
    )


def volume_mounts(spec: ContainerSpec) -> list[cri.Mount]:
    """Return the mounts of a container's volumes."""
    return [
        cri.Mount(
            container_path=volume.target,
            host_path=volume.source,
            readonly=volume.read_only,
            propagation=_PROPAGATIONS.get(volume.propagation, cri.PROPAGATION_PRIVATE),
        )
        for volume in spec.volumes
    ]


def mounts_of(edits: Edits) -> list[cri.Mount]:
    """Return bind mounts in the form of CRI."""
    return [
        cri.Mount(
            container_path=mount.container_path,
            host_path=mount.host_path,
            readonly="ro" in mount.options,
            propagation=next(
                (_PROPAGATIONS[option] for option in mount.options if option in _PROPAGATIONS),
                cri.PROPAGATION_PRIVATE,
            ),
        )
        for mount in edits.mounts
    ]


def devices_of(edits: Edits) -> list[cri.Device]:
    """Return device nodes of device plugins in the form of CRI."""
    return [
        cri.Device(
            container_path=node.path,
            host_path=node.host_path or node.path,
            permissions=node.permissions or "rwm",
        )
        for node in edits.device_nodes
    ]


def _stop_signal(container: Container) -> str:
    name = container.lifecycle.stop_signal if container.lifecycle is not None else None
    if not name:
        return "RUNTIME_DEFAULT"
    # In the API SIGRTMIN+1, in CRI SIGRTMINPLUS1.
    own = name.replace("+", "PLUS").replace("-", "MINUS")
    if own not in cri.DESCRIPTOR.enum_types_by_name["Signal"].values_by_name:
        raise InputError(f"lifecycle.stopSignal: unknown signal {name!r}")
    return own
