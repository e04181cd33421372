"""Rewards by a model judge: rubrics, a pool of endpoints, and measurements of the judge's quality."""
