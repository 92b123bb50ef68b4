"""Claims of papers about entropy, each tested over seeds with a small policy.

tiny.toml, smollm2.toml: the claims, their statistics and bounds, and the runs that they compare
study: a table of claims, checked; its runs as a comparison, and what their statistics say of each claim
"""
