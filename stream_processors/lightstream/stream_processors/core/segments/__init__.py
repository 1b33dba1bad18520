"""Trajectory-level sequences: turns merged where one prompt continues the previous sequence exactly."""
