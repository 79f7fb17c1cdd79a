"""Who holds what on a node, asked of any kubelet.

`client` asks, `text` shows it to people, `exporter` says it in Prometheus' words, and `process` serves that.
"""
