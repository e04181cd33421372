"""How the commands show progress and results, on a terminal, in files and in pipes."""
