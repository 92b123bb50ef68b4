"""Engines behind the interface of `agents.engine`.

opening: the choice of an engine, and its start and end
torch: the embedded engine, which runs the model in this process
vllm: the engine whose turns vLLM servers draw
"""
