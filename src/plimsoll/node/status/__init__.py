"""A node in the API: `node_object` says what its Node and Lease are, `presence` keeps them up."""
