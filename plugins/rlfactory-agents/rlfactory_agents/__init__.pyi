from .tools.agent import agent_tool as agent_tool
from .tools.model import model_tool as model_tool
