"""A server under mixed load for minutes: nothing lost, nothing wrong, nothing grows."""
