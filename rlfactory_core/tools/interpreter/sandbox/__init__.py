"""The programs on the other side: the warden, which forks an interpreter per trajectory, and the interpreter itself.

The warden's process loads this package by itself, under the name ``sandbox``, from the standard library alone: it must
start fast and hold nothing of ours. Its modules therefore import each other relatively, and nothing else.
"""
