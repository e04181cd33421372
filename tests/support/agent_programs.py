"""The beginning of agents in a program of their own, without any framework."""

ASKING = """
import json, os, sys, urllib.request

def ask(messages):
    body = {"messages": messages, "model": os.environ["OPENAI_MODEL"]}
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

sample = json.load(sys.stdin)
"""
"""Reads the sample; ``ask(messages)`` gives the model's next message."""
