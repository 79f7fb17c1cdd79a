"""Binding cycle: `bind` writes a placement and undoes it on failure, through the interface of `writer`.

`pod_conditions` has the texts and patches of PodScheduled, `binding_conditions` the readiness of devices,
`device_check` the last check before binding, `recovery` the steps of a new leader.
"""
