"""Commands that train or show training, one a file.

- `train`, `compare`, `diagnose`, `demo`, `claims`: commands that make runs
- `methods`, `audit`, `view`, `analyse`, `export`: commands that show methods and runs
- `evaluate`: `turngym eval`, and the page of its result
- `verify`: `turngym verify`, in a source checkout
"""
