"""Comparing methods: the same tasks, seeds and budget, a run each; also in small worlds, and to test claims of papers.

plan: what is compared, checked before the first rollout, and made, several runs at a time in processes
workers: tasks done in processes of their own, and begun again when a process has died
effect: which episodes a run saw, and whether they are those of the reference
own_term: how much of a run's gradient the reference would not have
measure: what trained policies do in the end, from episodes that they play
tune: as many settings for every method, tried on seeds of their own
results: the results of each method, read from the run folders
outcomes: what policies do in the end and what so many seeds tell of it, also for `turngym diagnose`; the report: tables
    in the terminal and in compare.md, all numbers in compare.json, a picture in compare.png
diagnosis: small worlds in which a method has to hold or to let go of entropy at the right turns; a comparison in each,
    the policies that its seeds begin with, and its report
demo: GRPO beside a floor under entropy in one of these worlds, watched while they learn
claims: what papers say about entropy, tested with a small policy; tiny.toml, smollm2.toml: the tables of claims
"""
