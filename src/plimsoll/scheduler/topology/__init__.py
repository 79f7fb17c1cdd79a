"""Topology: what the rules about other pods (inter-pod affinity and topology spread) have in common.

`affinity_terms` and `constraints` parse the rules of a pod, `domains` has the topology values of nodes,
`counts` counts pods by node, `match_counts` the pods that match a rule, `affinity_index` the terms of
existing pods, `namespaces` the labels of namespaces.
"""
