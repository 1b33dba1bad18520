"""Pure decisions: life cycle, assembly, rewards, credit. Only schemas are imported; the clock is an argument."""
