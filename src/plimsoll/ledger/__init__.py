"""Who is charged what: pods, their claims, and the nodes they run on (documents 000 and 002)."""
