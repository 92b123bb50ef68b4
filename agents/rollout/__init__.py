"""Rollouts: a policy acts in copies of an environment.

collect: trees of paths for some tasks
tree: one tree of paths, with branches where a plan asks for them
branching: the events that a plan gets, and the paths that it may ask for
path: one path, turn by turn
deadlines: how long a rollout waits
"""
