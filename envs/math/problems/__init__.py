"""Generated problems.

- `families`: a text, its exact answer and a program that prints it, by the rows of `families.toml`
- `tasks`: sets of them, with their splits
"""
