"""Generated problems: a text, its exact answer and a program that prints it.

- `tasks`: sets of problems, with their splits
- `families`: all families, in order
- `problem`: what a kind of problem is, and how it registers itself
- `arithmetic`, `words`, `fractions`, `percent`, `units`, `linear`, `systems`, `number_theory`,
  `sequences`, `sums`: the families, each with one function a kind of problem
- `writing`: how terms and decimals are written
- `vocabulary`: the words of stories
"""
