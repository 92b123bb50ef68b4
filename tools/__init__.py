"""What an agent can hold: tools, and the text formats in which it calls them. No torch here.

- `core`: the interface of a tool; calls on threads of their own, with a deadline
- `functions`: tools made from functions and classes, and their JSON schemas
- `plugins`: what is taken for a tool; other people's code by name, and what installed packages declare
- `docstrings`: the docstring of `module:name` without an import of it, for lists of plugins
- `formats`: how a call is written in text
- `thoughts`: what an agent thinks and what it says
- `python`: the Python tool, a sandbox
- `search`: the `search` and `visit` tools
- `http`: JSON over HTTP, for clients of search and model servers
- `process`: child processes that answer requests, with limits and deadlines, and pools of them
- `messages`: messages between processes
- `files`: files in folders of others: no link is followed, limits, temporary names; TOML
- `progress`: how far long work is, for who shows it
"""

from .core import Status, Tool, ToolFailure, ToolResult
from .formats import FORMATS, Format, Parsed, ToolCall, get_format
from .functions import FunctionTool, Toolset, tool
from .plugins import AnyTool
from .python import PythonTool
from .search import Passage, Retriever, Search, SearchFailure

__all__ = [
    "FORMATS",
    "AnyTool",
    "Format",
    "FunctionTool",
    "Parsed",
    "Passage",
    "PythonTool",
    "Retriever",
    "Search",
]
__all__ += [
    "SearchFailure",
    "Status",
    "Tool",
    "ToolCall",
    "ToolFailure",
    "ToolResult",
    "Toolset",
    "get_format",
    "tool",
]
