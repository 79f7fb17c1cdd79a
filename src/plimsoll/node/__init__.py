"""Node agent, Plimsoll's kubelet: pod admission, claim preparation, containers, cgroups and PodResources.

Start at `agent.py`, which follows a pod from the watch to its containers and back. The components depend on
each other only through small protocols, so that the same agent can run thousands of simulated nodes or one
real machine.
"""
