"""From segments to answers: backends, the compiler, the engine cache and the hybrid executor."""
