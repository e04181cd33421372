from rlfactory_mcp.qwen_agent import qwen_tool as qwen_tool
from rlfactory_mcp.qwen_agent import qwen_tools as qwen_tools
from rlfactory_mcp.source import McpSource as McpSource
