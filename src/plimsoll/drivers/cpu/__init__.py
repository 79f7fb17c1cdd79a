"""CPU driver (docs/spec/cpu-driver.md): publishes CPUs as devices and pins containers to the claimed ones.

Start at `driver.py`. `topology` reads the machine, `allocation` chooses CPUs for a request, `devices` builds
the published devices, `state` keeps the CPUs of claims, `pinning` computes and enforces the cpuset of each
container, `process` is the command.
"""
