"""Tests of the store: against a plain twin, with failing disks, and with damaged files."""
