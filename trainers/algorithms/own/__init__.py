"""A loop of one's own: trajectories step by step, and a policy's primitives."""
