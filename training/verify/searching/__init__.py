"""How `turngym verify search` counts: references of retrieval, processes, servers that fail, hostile completions."""
