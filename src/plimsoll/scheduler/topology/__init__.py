"""Topology indexes shared by inter-pod affinity and topology spread constraints.

`affinity_terms` and `constraints` parse the terms of a pod; `domains` indexes the topology domains of nodes,
`match_counts` the pods that terms select, `affinity_index` the terms of existing pods; `counts` has the
counts by node and domain, `namespaces` the labels of namespaces.
"""
