"""What the API serves: the table of resources, and the shape of every kind.

`registry` says which resources there are, `schema` what their objects look like and whether an object fits.
Nothing here does I/O beyond reading the package's own data files.
"""
