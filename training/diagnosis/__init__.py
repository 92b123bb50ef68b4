"""Diagnosing methods: small worlds in which a method has to hold or to let go of entropy at the right turns.

cases: the worlds with the policies that begin in them, what each isolates, and when it counts as solved
measure: what a policy does in a world, from its episodes
begin: the policy that a seed begins with: warmed up, measured, and refused outside its gates
plan: what is made, checked before the first policy
work: the processes that make starts and runs, several at a time
report: the table in the terminal and in diagnose.md, all numbers in diagnose.json, a picture in diagnose.png
command: `turngym diagnose`
"""
