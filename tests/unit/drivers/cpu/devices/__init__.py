"""What the CPU driver publishes."""
