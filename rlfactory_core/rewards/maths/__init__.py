"""The reward `math`: finds the final answer in a text, and compares it with the accepted ones in another process."""
