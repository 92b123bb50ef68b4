"""What an agent can hold: tools, and the text formats in which it calls them. No torch here."""

from .core import FunctionTool, Status, Tool, ToolFailure, ToolResult, tool
from .formats import FORMATS, Format, Parsed, ToolCall, get_format
from .python import PythonTool
from .search import Passage, Retriever, Search, SearchFailure

__all__ = [
    "FORMATS",
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
    "get_format",
    "tool",
]
