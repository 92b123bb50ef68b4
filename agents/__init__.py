"""Who acts: chat format, engines, the LoRA policy, rollouts and evaluation."""
