"""Scheduler process: follows an API server, schedules pods and writes the results.

START HERE: `run.py`. A pod passes through `informers` (watch events to snapshot and queue), `loop` (take from
the queue, run the scheduling cycle, assume), `binder` (concurrent bindings, `scheduler/binding/bind.py`) and
`api_writer` (API calls). `failure_handler` handles pods that could not be scheduled, with `condition_writer`,
`event_recorder` and `evictor`. `takeover` runs once when a process becomes leader. `context` holds what they
share; `configuration`, `metrics`, `debug_pages` and `gc_control` serve the process; `dry_run` schedules
without writing.
"""
