"""Engines own the weights: one package each."""
