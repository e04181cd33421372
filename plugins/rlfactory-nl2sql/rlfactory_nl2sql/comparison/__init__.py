"""Compare the results of two queries, with several definitions of equality."""
