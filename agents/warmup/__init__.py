"""Small policies made from nothing for an environment.

pretrain: the warm-up itself, and the episodes of the environment's expert
exact: a policy that begins in a diagnostic world as a table says
supervised: a tokenizer of the environment's texts, a new model, and its training on episodes
"""
