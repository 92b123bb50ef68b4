"""Policies that learn from demonstrations, before they learn from rewards.

pretrain: a small policy made from nothing, and the episodes of the environment's expert
exact: a policy that begins in a diagnostic world as a table says
supervised: a tokenizer of texts, a new model, and training on episodes, also of LoRA weights
finetune: LoRA weights of any model, on the expert's episodes or on conversations of a file
"""
