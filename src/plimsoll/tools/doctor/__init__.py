"""Preflight and repair of a node: `plimsoll doctor`.

doctor.py      START HERE: gather, judge, repair, judge again
facts.py       what is gathered, as values
findings.py    what is told of it, as values
files.py       looking at files whatever they are
one module for each area, with what gathers its facts and what judges them:
root, sockets, privileges, machine, cgroups, records, pods, cdi, cluster
repairs.py     what can be mended, as values; surgery.py does it
report.py      findings as a table or as JSON

What gathers touches nothing and raises nothing, whatever lies there; what judges is a function of facts.
"""
