"""How a policy learns: entropy controls, the objective, the learner, the loop, checkpoints."""
