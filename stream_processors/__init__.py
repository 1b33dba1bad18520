"""From events to rollouts and from spans to trajectories: the pure core, the worker that runs it, adapters, replay."""
