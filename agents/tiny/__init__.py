"""The tiny policy, a model of about 1M parameters for MathPython; its weights and tokenizer lie in this folder.

make: how it is made from nothing, with its demonstrations
"""
