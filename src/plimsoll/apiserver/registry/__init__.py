"""Registry of the API: the table of resources, and the schema of every kind.

`resources` lists the resources, `schema` has the schemas of their objects and checks objects against them.
Nothing here does I/O beyond reading the package's own data files.
"""
