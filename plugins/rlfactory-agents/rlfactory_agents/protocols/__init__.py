"""The wire formats that agents speak: OpenAI chat completions, OpenAI responses and Anthropic messages."""
