"""Pure decisions: life cycle, assembly, rewards, credit. It imports the schemas alone, and is told the time."""
