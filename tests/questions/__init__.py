"""Query commands on observed clusters and on damaged or hostile input."""
