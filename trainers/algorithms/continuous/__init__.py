"""Learning from traffic: windows of rollouts that nobody enqueued, rules of choice, and learners."""
