"""CRI runtime: pods as sandboxes and containers of containerd or CRI-O, as a kubelet drives them.

runtime.py               `CriRuntime`: sandboxes, containers, images: START HERE
settings.py              endpoint of the runtime, DNS of pods, directory of logs
client.py                calls of the runtime's services
names.py                 labels and annotations of sandboxes and containers
sandbox_config.py        PodSandboxConfig of a pod (pure)
container_config.py      ContainerConfig of a container (pure)
linux_resources.py       planned resources in the form of CRI (pure)
security.py              security contexts in the form of CRI (pure)
pod_network.py           host name, DNS and hosts file of a pod (pure)
pod_files.py             files of the agent that containers mount
images.py                presence of images, by pull policy
registry_credentials.py  credentials of pull secrets (pure)
cache.py                 sandboxes and containers as last seen
container_status.py      statuses of CRI as states of containers
lifecycle_events.py      relists, container events and readiness of the runtime
log_rotation.py          rotation of container logs
"""
