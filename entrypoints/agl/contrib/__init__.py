"""what its users contributed."""
