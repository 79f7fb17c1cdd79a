"""The CPU driver (document 003): CPUs as devices, pinned for whom they are claimed.

Start at `driver.py`. `topology` says what the machine has, `assign` which CPUs a request gets, `devices`
what is published, `book` who holds which CPUs, `pinning` which CPUs each container may run on and how that
is enforced.
"""
