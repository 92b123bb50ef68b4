"""Small policies made from nothing for an environment.

pretrain: the warm-up itself, and the episodes of the environment's expert
supervised: a tokenizer of the environment's texts, a new model, and its training on episodes
"""
