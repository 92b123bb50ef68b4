"""What is kept of rollouts and runs, so that they can be repeated.

- `trees`: trees as JSON lines, exact to the last bit
- `replay`: the actions of a journal taken again
- `checkpoint`: checkpoints that are whole or not there
"""
