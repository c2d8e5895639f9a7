"""Six hosts in network namespaces: three services, two workers, and what they share."""
