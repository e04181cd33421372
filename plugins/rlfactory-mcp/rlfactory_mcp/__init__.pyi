from .qwen_agent import qwen_tool as qwen_tool
from .qwen_agent import qwen_tools as qwen_tools
from .source import McpSource as McpSource
from .source import pasted_servers as pasted_servers
from .source import server_names as server_names
