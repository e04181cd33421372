"""Databases: SQLite, PostgreSQL and MySQL with one interface, `connection.Connection`."""
