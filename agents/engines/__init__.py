"""Engines behind the interface of `agents.engine`: the embedded one runs the model in this process."""
