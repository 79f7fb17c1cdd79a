"""`plimsoll doctor`: preflight checks and repair of a node.

    doctor.py            START HERE: gather, judge, repair, judge again
    facts.py             gathered facts
    findings.py          findings
    files.py             safe inspection of files
    root_dir.py, sockets.py, privileges.py, machine.py, cgroups.py, records.py, pods.py, cdi.py, cluster.py
                         one module per area: gather its facts and judge them
    repairs.py           repairs as values; repair_executor.py executes them
    report.py            findings as a table or JSON

Gathering changes nothing and does not raise; judging is a pure function of facts.
"""
