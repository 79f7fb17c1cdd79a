"""Which CPUs each container may run on, and making it so: by NRI, or by writing cgroups."""
