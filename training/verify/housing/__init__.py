"""What `turngym verify household` counts with: recorded episodes, walkthroughs, the real engine, fuzzed commands."""
