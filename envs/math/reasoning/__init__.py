"""Tasks of reasoning-gym.

- `tasks`: the tasks that it makes
- `grader`: the answers that it scores, and those that are refused first
- `worker`: the child process in which it scores
"""
