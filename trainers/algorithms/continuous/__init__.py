"""Learning from traffic: windows of rollouts that nobody enqueued, rules for what may be learned from, and learners."""
