from .qwen_agent import qwen_tool as qwen_tool
from .qwen_agent import qwen_tools as qwen_tools
from .source import McpSource as McpSource
