"""Golden vectors inside the test suite."""
