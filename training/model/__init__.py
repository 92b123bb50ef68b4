"""The forward and backward pass of a policy.

- `attention`: attention over a layout in which paths share tokens
- `chunked_head`: log-probability and entropy of drawn tokens, without the logits of all
- `lora_linear`: layers with LoRA weights
"""
