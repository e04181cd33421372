"""Static checks of queries with sqlglot."""
