"""Node status: `node_object` builds the Node and Lease, `reporter` keeps them up to date."""
