"""Diagnosing methods: small worlds in which a method has to hold or to let go of entropy at the right turns.

cases: the worlds with the policies that begin in them, what each isolates, and when it counts as solved
begin: the policies that seeds begin with: warmed up, measured, refused outside their gates; which methods act on them
plan: a comparison in each world, checked before the first policy
report: the tables in the terminal and in diagnose.md, all numbers in diagnose.json, a picture in diagnose.png
command: `turngym diagnose`
"""
