"""Tests of the test tools and of the benchmarks."""
