"""Rewards by a model judge: rubrics, a pool of endpoints, and how far the judge can be trusted."""
