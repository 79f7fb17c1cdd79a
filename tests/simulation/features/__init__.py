"""Features of clusters that only some cases have: volumes, gangs, preemption, binding conditions, and others.

Each feature brings its objects, its load, its stand-ins for controllers, and its invariants in plain Python.
"""
