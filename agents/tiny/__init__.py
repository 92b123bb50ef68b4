"""The tiny policy: a model of about 1M parameters for MathPython, its demonstrations, and how it is made."""
