"""Expensive requests, handled in worker processes so that they never block the event loop.

`cost.py` estimates what a request costs from its bytes alone; `pool.py` owns the worker processes, their
deadline and the fair order in which users get one; `session.py` answers what a worker asks of the store and
commits its write; `worker.py` is the process itself: the same `Api` over `remote.py`, a store whose objects
live in the server.
"""
