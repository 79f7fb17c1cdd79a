"""The scheduler as a process: it follows an API, decides with `schedule/`, and writes down what it decided.

START at `process.py`. `settings` says how it is run, `feed` tells the snapshot and the queue what happens,
`loop` takes pods from the queue and decides, `binding`, `writer` and `recorder` write, `upkeep` looks after
what time brings about, `metrics`, `pages` and `logs` say how it goes. `dry_run` decides without writing.
"""
