"""Memory, time and speed of current architectures at real sizes, exported by torch with random weights."""
