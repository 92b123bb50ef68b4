"""Small policies made from nothing for an environment.

demonstrations: episodes of the environment's expert
tokenizer: a byte-level BPE of the environment's texts
supervised: a new model, and its training on episodes
pretrain: the warm-up itself
"""
