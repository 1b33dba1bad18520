"""An agent learns which tool solves a task: the demonstration that ``make demo`` runs."""
