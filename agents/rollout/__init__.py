"""Rollouts: a policy acts in copies of an environment.

- `collect`: trees of paths for some tasks
- `tree_grower`: one tree, with branches where a plan asks for them
- `path`: one path, turn by turn, and how long it may take
"""
