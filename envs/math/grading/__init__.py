"""Whether a completion answers a math question.

- `boxed_answer`: the answer of a completion: the last box, or what stands in its place
- `grader`: the verdict, exact if possible, else by math-verify in a process of `worker`
- `numbers`: plain numbers, read exactly
- `values`: tuples, lists, sets, intervals and matrices, element by element
- `names`: names in front of values, as in `x = 5`
- `notation`, `signs`: one spelling for what LaTeX and Unicode let people write in several ways
- `expressions`: a grammar of expressions; `calculus` compares integrals within the boundary of the Python tool
"""
