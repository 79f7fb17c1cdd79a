"""Tests of the CPU driver's devices and slices."""
