"""Databases: SQLite, DuckDB, PostgreSQL and MySQL with one interface, `connection.Connection`."""
