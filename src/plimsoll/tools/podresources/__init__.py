"""PodResources API client for any kubelet, and a Prometheus exporter.

`client` calls the API, `text` formats responses, `exporter` builds the metrics, and `process` serves them.
"""
