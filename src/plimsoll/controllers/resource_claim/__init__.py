"""ResourceClaim controller: creates claims from templates and releases them when their pods are done."""
