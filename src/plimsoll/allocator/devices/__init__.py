"""What there is: slices become pools, pools a node's numbered devices, and what others hold its usage."""
