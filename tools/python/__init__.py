"""The Python tool: code in, status and text out."""

from .tool import PythonTool

__all__ = ["PythonTool"]
