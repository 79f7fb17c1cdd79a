"""Pods and the topology they live in: what rules about other pods have in common.

`terms` reads the rules out of a pod, `domains` knows the topology values of nodes, `counts` counts pods place
by place, `tallies` counts those that a rule of a new pod asks for, `holders` finds the rules of pods that
are there already. Everything is kept up to date as pods come and go; nothing is looked at for a pod that no
rule concerns.
"""
