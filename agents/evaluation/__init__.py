"""Evaluating a policy or a player on an environment.

- `run`: check, play, report
- `scores`: scores with intervals; `statistics`: what seeds can tell
- `votes`: which answers of a task's samples are the same
- `results`: the folder of an evaluation; `exports`: the same for other people's tools
"""
