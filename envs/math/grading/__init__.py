"""Grades the answers to math questions.

- `grader`: the verdict, exact if possible, else by math-verify in a process of `worker`
- `boxed_answer`: finds the answer of a completion: its last box, or what stands for it
- `notation`: one spelling for what LaTeX lets people write in several ways; `signs` does the same
  for Unicode and the output of programs
- `names`: takes off the names in front of values, as in `x = 5`
- `numbers`: plain numbers, read exactly
- `values`: tuples, lists, sets, intervals and matrices, compared element by element
- `expressions`: a grammar of expressions; `calculus` checks integrals in the Python tool's sandbox
"""
