"""Tools that make the documentation site and the packages; the Makefile runs them."""
