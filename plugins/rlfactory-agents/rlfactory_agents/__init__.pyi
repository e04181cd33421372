from rlfactory_agents.tools.agent import agent_tool as agent_tool
from rlfactory_agents.tools.model import model_tool as model_tool
