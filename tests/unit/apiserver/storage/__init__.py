"""Tests of the store: against a reference implementation, with failing disks, and with damaged files."""
