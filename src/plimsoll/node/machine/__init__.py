"""The machine a node is: `machine` reads it and computes its line, `file` lets a file stand for one."""
