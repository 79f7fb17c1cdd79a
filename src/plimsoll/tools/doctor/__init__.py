"""`plimsoll doctor`: checks and repair of a node.

    doctor.py            START HERE: gather, check, repair, check again; the table of checks
    facts.py             gathered facts
    findings.py          results of checks
    files.py             safe inspection of files
    root_dir.py, sockets.py, privileges.py, machine.py, cgroups.py, records.py, pods.py, cdi.py, cluster.py
                         one module per area: `gather` its facts and `check` them
    repairs.py           repairs
    report.py            findings as a table or JSON

Gathering changes nothing and does not raise; a check is a pure function of facts.
"""
