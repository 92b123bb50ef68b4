"""Claims of papers about entropy, each tested over seeds with a small policy.

tiny.toml, smollm2.toml: the claims, their statistics and bounds, and the runs that they compare
plan: a table of claims, checked; its runs as a comparison
judge: the statistics of runs, and what seeds say of each claim
command: `turngym claims`
"""
