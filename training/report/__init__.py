"""What runs, evaluations and comparisons look like: `turngym view`.

data: what their folders hold, as plain data, and a line on what cannot be read
"""
