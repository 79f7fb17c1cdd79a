"""The embedded Kubernetes API: `api.py` is where a request begins, `http.py` what the network sees of it."""
