"""What an agent can hold: tools, and the text formats in which it calls them. No torch here.

- `core`: the interface of a tool
- `functions`: tools made from functions
- `toolset`: tools made from classes, and all that is taken for a tool
- `schema`: their JSON schemas, and arguments checked against them
- `formats`: how a call is written in text
- `python`: the Python tool, a sandbox
- `search`: the `search` and `visit` tools
- `http`: JSON over HTTP, for clients of search and model servers
- `process`: child processes that answer requests, with limits and deadlines, and pools of them
- `messages`: messages between processes
- `plugins`: other people's code by name, and what installed packages declare
- `threads`: calls on threads of their own, with a deadline
"""

from .core import Status, Tool, ToolFailure, ToolResult
from .formats import FORMATS, Format, Parsed, ToolCall, get_format
from .functions import FunctionTool, tool
from .python import PythonTool
from .search import Passage, Retriever, Search, SearchFailure
from .toolset import AnyTool, Toolset

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
