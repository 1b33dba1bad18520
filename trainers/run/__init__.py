"""What a run is: its names, its model and weights, its history, and who watches it."""
