"""Tasks of reasoning-gym.

- `tasks`: the tasks that it makes
- `grader`: grades answers: some are refused, some are computed here, the others it scores itself
- `worker`: the child process in which it scores
"""
