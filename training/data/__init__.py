"""The data of learning.

- `batch`: a batch as flat columns: a slot for each sampled token of a path, a row for each agent turn of a path
- `packing`: trees become a batch
- `layout`: the layout of a forward pass in which paths share tokens
"""
