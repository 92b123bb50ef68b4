"""Methods that weigh or mask tokens of the loss.

- `entropic`: EntroPIC (arXiv 2511.15248): a PI controller on the balance of positive and negative tokens holds the entropy
- `forking_tokens`: 80/20 forking tokens (arXiv 2506.01939): only the most uncertain tokens are learned from
- `nsr`: Negative and positive sample reinforcement (NSR, PSR, arXiv 2506.01347): learning from one side of the advantage
- `positive_reweighting`: Positive-advantage reweighting (arXiv 2511.05993): λ of the loss of tokens with A > 0, over time or by entropy
- `steer`: STEER (arXiv 2510.10150): tokens that change entropy the most weigh the least
- `ulorl`: UloRL's DMMPTs (arXiv 2507.19766): what is mastered and right is not learned again where entropy is low
"""
