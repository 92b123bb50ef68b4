"""What `turngym verify grader` counts with: hostile completions, right and wrong ones, a corpus of equal answers."""
