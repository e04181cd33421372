"""OpenEnv servers as a task, by their protocol on the wire, without OpenEnv's package."""
