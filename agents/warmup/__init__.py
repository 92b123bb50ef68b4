"""Small policies made from nothing for an environment.

settings: what decides the weights
demonstrations: episodes of the environment's expert
tokenizer: a byte-level BPE of the environment's texts
pretrain: the warm-up itself
"""
