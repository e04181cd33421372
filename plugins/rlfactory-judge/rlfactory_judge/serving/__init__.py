"""Serves the judge's model: the servers' processes, who watches over them, and the file that says where they answer."""
