"""What every environment promises, clause by clause; `turngym.agents.check` runs them."""
