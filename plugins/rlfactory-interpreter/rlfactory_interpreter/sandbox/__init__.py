"""The programs of the other processes: a fork server, which forks the interpreters, and the interpreter.

The fork server's process loads only this package, under the name ``sandbox``, `rlfactory_sandbox`, and the
standard library. So it starts fast and holds no secrets. The modules here therefore import nothing else.
"""
