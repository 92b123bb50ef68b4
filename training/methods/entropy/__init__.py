"""Methods that add a term of entropy to the loss, or hold its level.

- `ada_ent_reg`: Adaptive entropy control (AEC, Skywork-OR1, arXiv 2505.22312): a bonus that is on only below a target
- `aent`: AEnt (arXiv 2509.03493): a bonus on the entropy of likely tokens alone, its coefficient held in a band
- `aepo_wang`: Arbitrary entropy (AEPO of Wang et al., arXiv 2510.08141): imitating hot or cold samples of one's own
- `entropy_bonus`: Entropy bonus (Williams & Peng 1991; Mnih et al., arXiv 1602.01783)
- `epo`: Entropy-regularised Policy Optimisation (EPO, arXiv 2509.22576 v2)
- `one_shot_em`: One-shot entropy minimisation (arXiv 2505.20282): ten steps that only sharpen the policy
- `turn_floor`: Turn floor (ours): a floor under the entropy of turns, let go where returns earn the loss or success falls
"""
