"""Documentation site: the repository's pages, and the references generated from the code."""
