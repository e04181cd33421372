"""Agents that are not ours play a task: in any framework, in any language, through an endpoint for each attempt."""
