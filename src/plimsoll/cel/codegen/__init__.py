"""The fast back end: generated Python for the usual shapes, falling back on the exact one."""
