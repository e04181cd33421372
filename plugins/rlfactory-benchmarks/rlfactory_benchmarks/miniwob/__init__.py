"""MiniWoB++: small web pages with a task each, played in a real Chromium."""
