"""The tools of an agent, and the text formats in which it calls them. No torch here.

- `base`: the interface of a tool
- `function_tool`: tools made from functions and classes; `json_schema`: their schemas
- `plugins`: what is taken for a tool; other people's code by name; what installed packages declare
- `docstrings`: docstrings of code that is not imported
- `formats`: how a call is written in text
- `thoughts`: what an agent thinks and what it says
- `python`: the Python tool, a sandbox
- `search`: the `search` and `visit` tools
- `http`: JSON over HTTP, for clients of search and model servers
- `subprocesses`: child processes with limits and deadlines, pools of them, messages between them
- `files`: files in other people's folders: no links, limits, temporary names; TOML
- `checks`: checks of names and numbers, texts shortened for messages
- `progress`: the progress of long work, for commands that display it
"""

from .base import Status, Tool, ToolFailure, ToolResult
from .formats import FORMATS, Format, Parsed, ToolCall, get_format
from .function_tool import FunctionTool, Toolset, tool
from .plugins import AnyTool
from .python.tool import PythonTool
from .search.retriever import Passage, Retriever, SearchFailure
from .search.tool import Search

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
