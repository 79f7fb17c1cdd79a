"""API server: a Kubernetes-compatible API on a durable single-file store. `api.py` handles requests,
`http.py` serves them over the network, `process.py` assembles and runs the server.
"""
