"""What each model family writes, read from its text: one module a call syntax."""
