"""The parts of a run: its names, its model and weights, its history, and its observers."""
