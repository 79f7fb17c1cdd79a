"""The embedded Kubernetes API: `api.py` is where a request begins, `http.py` the shell that the network sees."""
