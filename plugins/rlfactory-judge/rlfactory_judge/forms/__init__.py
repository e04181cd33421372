"""The forms of a judge's answer: what is asked for, its schema, and how it is read, tolerantly and never guessing."""
