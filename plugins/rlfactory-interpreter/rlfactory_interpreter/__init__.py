"""Python code that the model writes, run in a process of its own for each trajectory."""

from rlfactory_interpreter.limits import InterpreterLimits
from rlfactory_interpreter.tool import CodeInterpreter, code_interpreter

__all__ = ["CodeInterpreter", "InterpreterLimits", "code_interpreter"]
