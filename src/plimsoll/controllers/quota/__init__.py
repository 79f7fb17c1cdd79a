"""Resource usage as ResourceQuota counts it: usage of objects, scopes, and usage from the ledgers."""
