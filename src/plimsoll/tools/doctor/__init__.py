"""`plimsoll doctor`: checks of a node.

    doctor.py            START HERE: gather and check; the table of checks
    facts.py             gathered facts
    findings.py          results of checks, and commands for fixes
    files.py             safe inspection of files
    root_dir.py, sockets.py, privileges.py, machine.py, cgroups.py, records.py, pods.py, cdi.py, cluster.py
                         one module per area: `gather` its facts and `check` them
    report.py            findings as a table or JSON

Gathering changes nothing and does not raise; a check is a pure function of facts.
"""
