"""Worker processes for expensive requests, which must not block the event loop.

`cost.py` estimates the cost of a request from its bytes; `dispatcher.py` decides and delegates; `pool.py`
manages the processes, their deadlines and the fair order in which users get one; `job_session.py` answers a
worker's queries and commits its write; `remote.py` is the store of a worker, whose objects are in the server;
`worker_process.py` (one directory up) is the process itself.
"""
