"""Diagnosing methods: small worlds in which a method has to hold or to let go of entropy at the right turns.

plan: the worlds with what they isolate and when they are solved, and a comparison in each, checked at first; the
    policies that seeds begin with: warmed up, measured, refused outside their gates; which methods act on them
report: the tables in the terminal and in diagnose.md, all numbers in diagnose.json, a picture in diagnose.png
"""
