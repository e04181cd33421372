"""Requests to the judge: choice of the endpoint, retries, costs, and the cache of replies."""
