"""Golden vectors inside the test suite, where they are at hand."""
