"""What is measured of a run.

- `telemetry`: what a step measured
- `actions`: what siblings did, as actions
- `alarms`: signs that a run goes wrong
- `accounting`: check from the files of a run that every step adds up
- `entropy_analysis`: the measurements of papers on entropy, of a whole run
"""
