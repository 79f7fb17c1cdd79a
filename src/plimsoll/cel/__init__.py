"""Device selectors: the CEL dialect of DRA, compiled to Python. Imports only api and errors."""
