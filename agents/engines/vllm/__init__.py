"""The engine whose turns vLLM servers draw.

engine: `VllmEngine` and its sessions; `Fleet`: which server is asked, retries, servers that are down
client: one server: requests, their formats, and the check of its answers
publish: weights to servers, and the probe of a server's log-probabilities that proves them
server: a server process of our own: started, watched, started again
"""

from .engine import VllmEngine as VllmEngine
