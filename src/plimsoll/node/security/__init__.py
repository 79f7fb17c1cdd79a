"""Security contexts of pods, for containers that are processes of the machine.

credentials.py   credentials of a container, from its context and the agent's rights (pure): START HERE
context.py       pod and container security contexts merged, as the kubelet merges them (pure)
capabilities.py  names of Linux capabilities, and containerd's default set (pure)
seccomp.py       the RuntimeDefault seccomp profile as a BPF program (pure)
rights.py        the agent's own rights, read from the kernel
policy.py        admission of one container, with the kubelet's messages
"""
