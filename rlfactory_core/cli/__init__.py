"""The command line. A command's module is imported when the command is called, so that ``--help`` is fast."""
