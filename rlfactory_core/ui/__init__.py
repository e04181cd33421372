"""What people see in the terminal. Nothing here is imported by engines; they speak `reporting.progress`."""
