"""Methods that change the policy term of the loss.

- `cispo`: Clipped importance sampling weights (CISPO, MiniMax-M1, arXiv 2506.13585)
- `flowrl`: FlowRL (arXiv 2509.15207): the policy matches a distribution in proportion to the reward, and not its maximum
- `gspo`: Group Sequence Policy Optimization (GSPO, Zheng et al., arXiv 2507.18071)
- `simko`: SimKO (arXiv 2510.14807): at uncertain tokens the gradient of right paths is shared with other likely tokens
- `tis`: Truncated importance sampling (Ionides 2008; Espeholt et al., arXiv 1802.01561, Sec. 4.1)
"""
