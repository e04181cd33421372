"""Processes that run code or SQL which nobody has read: `forkserver` starts and ends them, `guards` confines them.

The modules here import only each other, relatively, and the standard library, so that a worker that is to know nothing
of this program can load them without the rest of the package.
"""
